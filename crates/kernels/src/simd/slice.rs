//! The operands of products in int8: 32 columns of 16 weight rows, and 32 activations.

use super::Simd;
use crate::format::Scale;

/// 32 columns of 16 weight rows, unpacked.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct WeightSlice<S: Simd> {
    /// Codes in the order of [`crate::format::Quantised::codes`], signed ones after [`Simd::signed_codes`].
    pub codes: [S::Codes; 8],
    /// Scales and minima of the first and the second sixteen columns.
    pub scales: [Scale<S>; 2],
}

/// 32 activations as int8: x ≈ scale · q. One cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Int8Block {
    /// The numbers, −127..=127, four to a word in ascending order from the lowest byte.
    pub q: [i32; 8],
    /// Scale.
    pub scale: f32,
    /// Sum of all 32 numbers times the scale.
    pub sum: f32,
    /// Sum of each half's numbers.
    pub half_sums: [i32; 2],
    /// Sum of each half's numbers times the scale.
    pub scaled_half_sums: [f32; 2],
    /// Sum of each half's numbers in 16 bits, the first half's in the lower ones.
    pub half_sum_pair: i32,
}

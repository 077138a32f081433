//! `Q1_0`: 128 elements of one bit and one f16 scale. value = d or −d.
//!
//! Block (18 bytes): `d` f16, `qs` 16 bytes: bit `i` of the little-endian number is set if element `i` is d.

use super::{BlockFormat, Plane, Quantised, bits, fit, plane};
use crate::simd::Simd;

/// The format `Q1_0`.
#[derive(Clone, Copy, Default)]
pub struct Q1_0;

const QS: usize = 2;

impl BlockFormat for Q1_0 {
    const BLOCK: usize = 128;
    const GROUP: usize = 32;
    const BYTES: usize = 18;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2), plane(2, 16, 4)];
    const ENCODE_NMSE: f64 = 3.78e-1;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (i, o) in out.iter_mut().enumerate() {
            *o = d * (2.0 * f32::from(bits::bit(&block[QS..], i)) - 1.0);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(128)) {
            let sum: f64 = values.iter().map(|v| f64::from(v.abs())).sum();
            fit::put_f16(block, 0, (sum / 128.0) as f32);
            bits::set_bits(&mut block[QS..], |i| u8::from(values[i] >= 0.0));
        }
    }
}

impl Quantised for Q1_0 {
    const LARGEST: i32 = 2;
    const ZERO: i32 = 1;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        bits::single_bits(s, tile, QS + 4 * g, 1)
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `QS + 4 * g, 1)` => `QS, 1)`
// [matmul] `2.0 * f32::from(bits::bit(&block[QS..], i)) - 1.0` => `f32::from(bits::bit(&block[QS..], i))`

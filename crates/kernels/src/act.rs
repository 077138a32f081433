//! Activations as matrix operations read them, made once and shared by all weights that read them.

use crate::gpu::twin::twin;
use crate::tensor::{Buffer, DeviceId};

/// How precisely activations are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// f32: the exact path of every format, for tests and reference runs.
    Exact,
    /// What is fastest for the weight: int8 with a scale per 32 for quantised weights; bfloat16 for bfloat16 weights
    /// where the CPU multiplies such pairs, rounded to nearest, ties to even; f32 for other float weights.
    Fast,
}

twin! {
    /// 32 activations as int8: x ≈ scale · q. One cache line.
    #[derive(Clone, Copy, Debug, Default, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C, align(64))]
    pub struct Int8Block in "act.h" {
        /// The numbers, −127..=127, four to a word in ascending order from the lowest byte.
        pub q: [i32; 8],
        /// The scale.
        pub scale: f32,
        /// Sum of all 32 numbers times the scale.
        pub sum: f32,
        /// Sum of each half's numbers.
        pub half_sums: [i32; 2],
        /// Sum of each half's numbers times the scale.
        pub scaled_half_sums: [f32; 2],
        /// Makes the block a cache line.
        pub padding: [u32; 2],
    }
}

/// Prepared activations: `rows` × `cols`, filled by [`crate::ops::Backend::prepare_activations`].
///
/// All representations that a weight may want are kept: weights of several formats may share one input.
#[derive(Debug)]
pub struct Act {
    pub(crate) device: DeviceId,
    pub(crate) precision: Precision,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// rows × cols, contiguous.
    pub(crate) exact: Buffer<f32>,
    /// rows × ⌈cols / 32⌉. Empty at [`Precision::Exact`], and if the backend does not read them.
    pub(crate) int8: Buffer<Int8Block>,
    /// rows × ⌈cols / 2⌉ pairs of bfloat16, the even column in the lower half, and beside an odd last column zero. Has
    /// 16 words for each block of `int8`, or none if the backend does not read them. For CUDA each row has those 16 words for
    /// each of its blocks, zeros after its end, and of 16 columns the even ones come before the odd ones: so four lanes that
    /// have four neighbours each find them at the places that tensor cores give them.
    pub(crate) bf16: Buffer<u32>,
}

impl Act {
    /// Rows that are filled.
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Elements in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }
    /// Where it lives.
    pub fn device(&self) -> DeviceId {
        self.device
    }
}

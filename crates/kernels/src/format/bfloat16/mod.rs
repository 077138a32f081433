//! `BF16`: bfloat16 (the upper half of a binary32), little-endian.

use super::{BlockFormat, Float, Plane, plane};
use crate::simd::Simd;

/// The format `BF16`.
#[derive(Clone, Copy, Default)]
pub struct BF16;

impl BlockFormat for BF16 {
    const BLOCK: usize = 1;
    const GROUP: usize = 1;
    const BYTES: usize = 2;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2)];
    const ENCODE_NMSE: f64 = 2.9e-6;

    fn decode(b: &[u8], out: &mut [f32]) {
        out[0] = half::bf16::from_le_bytes([b[0], b[1]]).to_f32();
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, v) in blocks.chunks_exact_mut(2).zip(values) {
            block.copy_from_slice(&half::bf16::from_f32(*v).to_le_bytes());
        }
    }
}

impl Float for BF16 {
    const IS_BF16: bool = true;

    #[inline(always)]
    fn load<S: Simd>(s: S, tile: &[u8], k: usize) -> S::F32 {
        s.load_bf16(tile, k * 16 * 2)
    }
}

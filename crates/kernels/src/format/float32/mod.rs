//! `F32`: IEEE 754 binary32, little-endian.

use super::{BlockFormat, Float, Plane, plane};
use crate::simd::Simd;

/// The format `F32`.
#[derive(Clone, Copy, Default)]
pub struct F32;

impl BlockFormat for F32 {
    const BLOCK: usize = 1;
    const GROUP: usize = 1;
    const BYTES: usize = 4;
    const PLANES: &'static [Plane] = &[plane(0, 4, 4)];
    const ENCODE_NMSE: f64 = 0.0;

    fn decode(b: &[u8], out: &mut [f32]) {
        out[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, v) in blocks.chunks_exact_mut(4).zip(values) {
            block.copy_from_slice(&v.to_le_bytes());
        }
    }
}

impl Float for F32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, tile: &[u8], k: usize) -> S::F32 {
        s.load_f32_bytes(tile, k * 16 * 4)
    }
}

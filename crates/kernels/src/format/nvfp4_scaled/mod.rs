//! `NVFP4` blocks with the scale of their tensor, or of their expert: value = outer · scale / 2 · VALUES\[q\]. No file has
//! this format. A GGUF file has the scale as a tensor of its own; with it in each block, all operations have it.
//!
//! Block (40 bytes): `outer` f32, then a block of [`super::nvfp4`].

use super::nvfp4::{BLOCK, GROUPS, codes_at, encode_block, half_of, half_scale, outer_scale, place};
use super::{BlockFormat, Plane, Quantised, Scale, mxfp4, plane};
use crate::simd::Simd;

/// The format `NVFP4_SCALED`.
#[derive(Clone, Copy, Default)]
pub struct NVFP4_SCALED;

const SCALES: usize = 4;
const QS: usize = SCALES + GROUPS;

fn outer_of(block: &[u8]) -> f32 {
    f32::from_le_bytes([block[0], block[1], block[2], block[3]])
}

/// Appends blocks of `NVFP4` with the scale of their tensor.
pub fn put_blocks(blocks: &[u8], outer: f32, out: &mut Vec<u8>) {
    for block in blocks.chunks_exact(super::nvfp4::NVFP4::BYTES) {
        out.extend(outer.to_le_bytes());
        out.extend(block);
    }
}

impl BlockFormat for NVFP4_SCALED {
    const BLOCK: usize = BLOCK;
    const GROUP: usize = 16;
    const BYTES: usize = QS + BLOCK / 2;
    // GPUs read planes of 16 bytes.
    const PLANES: &'static [Plane] =
        &[plane(0, 4, 4), plane(SCALES, GROUPS, 1), plane(QS, 16, 4), plane(QS + 16, 16, 4)];
    const ENCODE_NMSE: f64 = 7.5e-3;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let outer = outer_of(block);
        for (i, o) in out.iter_mut().enumerate() {
            let (byte, shift) = place(i);
            let code = block[QS + byte] >> shift & 15;
            *o = outer * half_scale(block[SCALES + i / 16]) * f32::from(mxfp4::VALUES[usize::from(code)]);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(BLOCK)) {
            let largest = values.iter().fold(0f32, |m, v| if v.abs() > m { v.abs() } else { m });
            let outer = outer_scale(largest);
            block[..SCALES].copy_from_slice(&outer.to_le_bytes());
            let (scales, qs) = block[SCALES..].split_at_mut(GROUPS);
            encode_block(s, values, outer, scales, qs);
        }
    }
}

impl Quantised for NVFP4_SCALED {
    const LARGEST: i32 = 24;
    const ZERO: i32 = 12;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        codes_at(s, tile, QS, g)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], g: usize) -> [Scale<S>; 2] {
        let outer = s.as_f32(s.load_i32(tile, 0));
        two!(half => {
            let scale = half_of(s, s.load_u8(tile, 16 * (SCALES + 2 * g + half)));
            Scale { scale: s.mul(outer, scale), min: s.splat(0.0) }
        })
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.mul(outer, scale)` => `scale`
// [matmul] `16 * (SCALES + 2 * g + half)` => `16 * (SCALES + half)`
// [formats] `out.extend(outer.to_le_bytes());` => `let _ = outer; out.extend(1f32.to_le_bytes());`

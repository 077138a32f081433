//! `Q4_K`: super-blocks of 256 elements in 8 groups of 32. value = d · scale · q − dmin · min, q in 0..16.
//!
//! Block (144 bytes): `d` f16, `dmin` f16, `scales` 12 bytes (see [`scales`]), `qs` 128 bytes: byte `32·c + i` holds
//! element `64·c + i` in its low and `64·c + 32 + i` in its high nibble.

use super::bits::Field;
use super::{BlockFormat, Plane, Quantised, Scale, fit, k_scales as scales, plane};
use crate::simd::Simd;

/// The format `Q4_K`.
#[derive(Clone, Copy, Default)]
pub struct Q4_K;

#[inline(always)]
fn code(g: usize) -> Field {
    Field { start: scales::BYTES + 32 * (g / 2), shift: 4 * (g % 2), bits: 4 }
}

impl BlockFormat for Q4_K {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 144;
    const PLANES: &'static [Plane] = &[plane(0, 4, 2), plane(4, 12, 1), plane(16, 128, 4)];
    const ENCODE_NMSE: f64 = 5.0e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let (scale, min) = scales::scale_min(block, g);
            for (i, o) in out.iter_mut().enumerate() {
                *o = scale * f32::from(code(g).get(block, i)) - min;
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        let fit = fit::super_affine::<S, 32>(s, values, 8, 15.0, 63.0);
        for (b, block) in blocks.chunks_exact_mut(Self::BYTES).enumerate() {
            block.fill(0);
            scales::put(&fit, b, block);
            for g in 0..8 {
                for i in 0..32 {
                    code(g).set(block, i, fit.codes[i][8 * b + g] as u8);
                }
            }
        }
    }
}

impl Quantised for Q4_K {
    const LARGEST: i32 = 15;
    const HAS_MIN: bool = true;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        code(g).codes(s, tile, 0)
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        [scales::scale_lanes(s, tile, g); 2]
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], g: usize) -> [Scale<S>; 2] {
        [scales::scale_min_lanes(s, tile, g); 2]
    }
}

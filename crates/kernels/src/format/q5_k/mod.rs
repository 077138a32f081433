//! `Q5_K`: super-blocks of 256 elements in 8 groups of 32. value = d · scale · q − dmin · min, q in 0..32.
//!
//! Block (176 bytes): `d` f16, `dmin` f16, `scales` 12 bytes (see [`scales`]), `qh` 32 bytes: bit `g` of byte `i` is
//! the high bit of element `32·g + i`, `qs` 128 bytes: byte `32·c + i` holds element `64·c + i` in its low and
//! `64·c + 32 + i` in its high nibble.

use super::bits::{self, Field};
use super::k_scales as scales;
use super::{BlockFormat, Plane, Quantised, Scale, fit, plane};
use crate::simd::Simd;

/// The format `Q5_K`.
#[derive(Clone, Copy, Default)]
pub struct Q5_K;

const QS: usize = scales::BYTES + 32;

#[inline(always)]
fn low(g: usize) -> Field {
    Field { start: QS + 32 * (g / 2), shift: 4 * (g % 2), bits: 4 }
}

#[inline(always)]
fn high(g: usize) -> Field {
    Field { start: scales::BYTES, shift: g, bits: 1 }
}

impl BlockFormat for Q5_K {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 176;
    const PLANES: &'static [Plane] = &[plane(0, 4, 2), plane(4, 12, 1), plane(16, 32, 4), plane(48, 128, 4)];
    const ENCODE_NMSE: f64 = 1.23e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let (scale, min) = scales::scale_min(block, g);
            for (i, o) in out.iter_mut().enumerate() {
                *o = scale * f32::from(low(g).get(block, i) | high(g).get(block, i) << 4) - min;
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        let fit = fit::super_affine::<S, 32>(s, values, 8, 31.0, 63.0);
        for (b, block) in blocks.chunks_exact_mut(Self::BYTES).enumerate() {
            block.fill(0);
            scales::put(&fit, b, block);
            for g in 0..8 {
                for i in 0..32 {
                    let q = fit.codes[i][8 * b + g] as u8;
                    low(g).set(block, i, q);
                    high(g).set(block, i, q >> 4);
                }
            }
        }
    }
}

impl Quantised for Q5_K {
    const LARGEST: i32 = 31;
    const HAS_MIN: bool = true;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        bits::or(s, low(g).codes(s, tile, 0), high(g).codes(s, tile, 4))
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

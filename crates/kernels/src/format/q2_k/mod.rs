//! `Q2_K`: super-blocks of 256 elements in 16 groups of 16. value = d · scale · q − dmin · min, q in 0..4.
//!
//! Block (84 bytes): `scales` 16 bytes (a group's scale in the low, its minimum in the high nibble), `qs` 64 bytes,
//! `d` f16, `dmin` f16. Element `128·h + 32·c + i` is at bit `2·c` of `qs` byte `32·h + i`.

use super::bits::{self, Field};
use super::{BlockFormat, Plane, Quantised, Scale, fit, plane};
use crate::simd::Simd;

/// The format `Q2_K`.
#[derive(Clone, Copy, Default)]
pub struct Q2_K;

const QS: usize = 16;
const D: usize = 80;
const DMIN: usize = 82;

#[inline(always)]
fn code(g: usize) -> Field {
    Field { start: QS + 32 * (g / 4), shift: 2 * (g % 4), bits: 2 }
}

impl BlockFormat for Q2_K {
    const BLOCK: usize = 256;
    const GROUP: usize = 16;
    const BYTES: usize = 84;
    const PLANES: &'static [Plane] = &[plane(0, 16, 1), plane(16, 64, 4), plane(80, 4, 2)];
    const ENCODE_NMSE: f64 = 6.9e-2;

    fn decode(block: &[u8], out: &mut [f32]) {
        let (d, dmin) = (bits::f16_at(block, D), bits::f16_at(block, DMIN));
        for (t, out) in out.chunks_exact_mut(16).enumerate() {
            let scale = d * f32::from(block[t] & 15);
            let min = dmin * f32::from(block[t] >> 4);
            for (i, o) in out.iter_mut().enumerate() {
                *o = scale * f32::from(code(t / 2).get(block, t % 2 * 16 + i)) - min;
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], block: &mut [u8]) {
        let fit = fit::super_affine::<S, 16>(s, values, 16, 3.0, 15.0);
        block.fill(0);
        block[D..DMIN].copy_from_slice(&fit.d[0].to_le_bytes());
        block[DMIN..].copy_from_slice(&fit.dmin[0].to_le_bytes());
        for t in 0..16 {
            block[t] = fit.scale[t] as u8 | (fit.min[t] as u8) << 4;
            for i in 0..16 {
                code(t / 2).set(block, t % 2 * 16 + i, fit.codes[i][t] as u8);
            }
        }
    }
}

impl Quantised for Q2_K {
    const LARGEST: i32 = 3;
    const HAS_MIN: bool = true;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        code(g).codes(s, tile, 0)
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.load_f16(tile, 16 * D)
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        two!(half => s.and_i32(s.load_u8(tile, 16 * (2 * g + half)), s.splat_i32(15)))
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], g: usize) -> [Scale<S>; 2] {
        let d = Self::unit(s, tile);
        let dmin = s.load_f16(tile, 16 * DMIN);
        let integers = Self::integers(s, tile, g);
        two!(half => {
            let min = s.shr_i32(s.load_u8(tile, 16 * (2 * g + half)), 4);
            Scale { scale: s.mul(d, s.to_f32(integers[half])), min: s.mul(dmin, s.to_f32(min)) }
        })
    }
}

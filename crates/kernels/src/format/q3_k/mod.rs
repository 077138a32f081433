//! `Q3_K`: super-blocks of 256 elements in 16 groups of 16. value = d · (scale − 32) · (q − 4), q in 0..8.
//!
//! Block (110 bytes): `hmask` 32 bytes (high bits), `qs` 64 bytes (low 2 bits), `scales` 12 bytes, `d` f16.
//! Element `128·h + 32·c + i` has its low bits at bit `2·c` of `qs` byte `32·h + i` and its high bit at bit `4·h + c`
//! of `hmask` byte `i`. Group `t` has the low 4 bits of its 6-bit scale in nibble `t / 8` of `scales` byte `t % 8`
//! and the high 2 at bit `2·(t / 4)` of `scales` byte `8 + t % 4`.

use super::bits::{self, Field};
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `Q3_K`.
#[derive(Clone, Copy, Default)]
pub struct Q3_K;

const QS: usize = 32;
const SCALES: usize = 96;
const D: usize = 108;

#[inline(always)]
fn low(g: usize) -> Field {
    Field { start: QS + 32 * (g / 4), shift: 2 * (g % 4), bits: 2 }
}

#[inline(always)]
fn high(g: usize) -> Field {
    Field { start: 0, shift: g, bits: 1 }
}

impl BlockFormat for Q3_K {
    const BLOCK: usize = 256;
    const GROUP: usize = 16;
    const BYTES: usize = 110;
    const PLANES: &'static [Plane] = &[plane(0, 32, 4), plane(32, 64, 4), plane(96, 12, 1), plane(108, 2, 2)];
    const ENCODE_NMSE: f64 = 2.11e-2;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, D);
        let scales = &block[SCALES..D];
        for (t, out) in out.chunks_exact_mut(16).enumerate() {
            let scale = scales[t % 8] >> (4 * (t / 8)) & 15 | (scales[8 + t % 4] >> (2 * (t / 4)) & 3) << 4;
            let scale = d * (f32::from(scale) - 32.0);
            for (i, o) in out.iter_mut().enumerate() {
                let g = t / 2;
                let i = t % 2 * 16 + i;
                let q = low(g).get(block, i) | high(g).get(block, i) << 2;
                *o = scale * (f32::from(q) - 4.0);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], block: &mut [u8]) {
        let fit = fit::super_scaled::<S, fit::Signed<4>, 16>(s, values, 16, -32.0);
        block.fill(0);
        block[D..].copy_from_slice(&fit.d[0].to_le_bytes());
        for t in 0..16 {
            let six = (fit.scale[t] + 32.0) as u8;
            block[SCALES + t % 8] |= (six & 15) << (4 * (t / 8));
            block[SCALES + 8 + t % 4] |= six >> 4 << (2 * (t / 4));
            for i in 0..16 {
                let q = fit.codes[i][t] as u8;
                low(t / 2).set(block, t % 2 * 16 + i, q);
                high(t / 2).set(block, t % 2 * 16 + i, q >> 2);
            }
        }
    }
}

impl Quantised for Q3_K {
    const LARGEST: i32 = 7;
    const ZERO: i32 = 4;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        bits::or(s, low(g).codes(s, tile, 0), high(g).codes(s, tile, 2))
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.load_f16(tile, 16 * D)
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        two!(half => {
            let t = 2 * g + half;
            let low = scale_bits(s, tile, t % 8, 4 * (t / 8), 15);
            let high = scale_bits(s, tile, 8 + t % 4, 2 * (t / 4), 3);
            s.add_i32(s.or_i32(low, s.shl_i32(high, 4)), s.splat_i32(-32))
        })
    }
}

/// Some bits of a byte of the scales, for 16 rows.
#[inline(always)]
fn scale_bits<S: Simd>(s: S, tile: &[u8], byte: usize, shift: usize, mask: i32) -> S::I32 {
    s.and_i32(s.shr_i32(s.load_u8(tile, 16 * (SCALES + byte)), shift as u32), s.splat_i32(mask))
}

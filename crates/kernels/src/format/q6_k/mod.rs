//! `Q6_K`: super-blocks of 256 elements in 16 groups of 16. value = d · scale · (q − 32), q in 0..64.
//!
//! Block (210 bytes): `ql` 128 bytes (low 4 bits), `qh` 64 bytes (high 2 bits), `scales` i8 × 16, `d` f16.
//! With `h` the half and `c` the 32 elements within it (0..4), element `128·h + 32·c + i` has its low bits in nibble
//! `c / 2` of `ql` byte `64·h + 32·(c % 2) + i` and its high bits at bit `2·c` of `qh` byte `32·h + i`.

use super::bits::{self, Field};
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `Q6_K`.
#[derive(Clone, Copy, Default)]
pub struct Q6_K;

const QH: usize = 128;
const SCALES: usize = 192;
const D: usize = 208;

#[inline(always)]
fn low(g: usize) -> Field {
    Field { start: 64 * (g / 4) + 32 * (g % 2), shift: 4 * (g / 2 % 2), bits: 4 }
}

#[inline(always)]
fn high(g: usize) -> Field {
    Field { start: QH + 32 * (g / 4), shift: 2 * (g % 4), bits: 2 }
}

impl BlockFormat for Q6_K {
    const BLOCK: usize = 256;
    const GROUP: usize = 16;
    const BYTES: usize = 210;
    // In a tile: scales, d, then for each half its 64 low and 32 high bytes. In the file's order three distant streams
    // would alternate, which the prefetcher does not follow: GEMV reads 15 GB/s in that order, 25 in this, of 45.
    const PLANES: &'static [Plane] = &[
        plane(SCALES, 16, 1),
        plane(D, 2, 2),
        plane(0, 64, 4),
        plane(QH, 32, 4),
        plane(64, 64, 4),
        plane(QH + 32, 32, 4),
    ];
    const ENCODE_NMSE: f64 = 2.9e-4;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, D);
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            for (i, o) in out.iter_mut().enumerate() {
                let q = low(g).get(block, i) | high(g).get(block, i) << 4;
                let scale = d * f32::from(block[SCALES + 2 * g + i / 16] as i8);
                *o = scale * (f32::from(q) - 32.0);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], block: &mut [u8]) {
        let fit = fit::super_scaled::<S, fit::Signed<32>, 16>(s, values, 16, -128.0);
        block.fill(0);
        block[D..].copy_from_slice(&fit.d[0].to_le_bytes());
        for t in 0..16 {
            block[SCALES + t] = fit.scale[t] as i8 as u8;
            for i in 0..16 {
                let q = fit.codes[i][t] as u8;
                low(t / 2).set(block, t % 2 * 16 + i, q);
                high(t / 2).set(block, t % 2 * 16 + i, q >> 4);
            }
        }
    }
}

impl Quantised for Q6_K {
    const LARGEST: i32 = 63;
    const ZERO: i32 = 32;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let half = 18 + 96 * (g / 4);
        let low = Field { start: half + 32 * (g % 2), ..low(g) };
        let high = Field { start: half + 64, ..high(g) };
        bits::or(s, low.codes(s, tile, 0), high.codes(s, tile, 4))
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.load_f16(tile, 16 * 16)
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        two!(half => s.load_i8(tile, 16 * (2 * g + half)))
    }
}

//! `Q5_1`: 32 codes of 5 bits, an f16 scale and an f16 lowest value. value = d · q + m.
//!
//! Block (24 bytes): `d` f16, `m` f16, `qh` 4 bytes: bit `i` of the little-endian number is the high bit of element
//! `i`, `qs` 16 bytes: byte `i` holds element `i` in its low and `16 + i` in its high nibble.

use super::{BlockFormat, Plane, Quantised, Scale, bits, fit, plane};
use crate::simd::Simd;

/// The format `Q5_1`.
#[derive(Clone, Copy, Default)]
pub struct Q5_1;

const QH: usize = 4;
const QS: usize = 8;

impl BlockFormat for Q5_1 {
    const BLOCK: usize = 32;
    const GROUP: usize = 32;
    const BYTES: usize = 24;
    const PLANES: &'static [Plane] = &[plane(0, 4, 2), plane(4, 4, 4), plane(8, 16, 4)];
    const ENCODE_NMSE: f64 = 1.17e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        let (d, m) = (bits::f16_at(block, 0), bits::f16_at(block, 2));
        for (i, o) in out.iter_mut().enumerate() {
            let q = bits::nibble(&block[QS..], i) | bits::bit(&block[QH..QS], i) << 4;
            *o = d * f32::from(q) + m;
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        let fit = fit::affine::<S, 32>(s, values, 31.0);
        for (lane, block) in blocks.chunks_exact_mut(Self::BYTES).enumerate() {
            block[..2].copy_from_slice(&fit.d[lane].to_le_bytes());
            block[2..4].copy_from_slice(&fit.m[lane].to_le_bytes());
            bits::set_bits(&mut block[QH..QS], |i| fit.codes[i][lane] as u8 >> 4);
            bits::set_nibbles(&mut block[QS..], |i| fit.codes[i][lane] as u8 & 15);
        }
    }
}

impl Quantised for Q5_1 {
    const LARGEST: i32 = 31;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], _g: usize) -> [S::Codes; 8] {
        bits::or(s, bits::nibble_codes(s, tile, QS), bits::single_bits(s, tile, QH, 4))
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], _g: usize) -> [Scale<S>; 2] {
        // The product with −1 keeps the sign of a zero, which 0 − m would lose.
        let min = s.mul(s.load_f16(tile, 32), s.splat(-1.0));
        [Scale { scale: s.load_f16(tile, 0), min }; 2]
    }
}

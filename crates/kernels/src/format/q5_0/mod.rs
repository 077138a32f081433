//! `Q5_0`: 32 codes of 5 bits and one f16 scale. value = d · (q − 16).
//!
//! Block (22 bytes): `d` f16, `qh` 4 bytes: bit `i` of the little-endian number is the high bit of element `i`,
//! `qs` 16 bytes: byte `i` holds element `i` in its low and `16 + i` in its high nibble.

use super::{BlockFormat, Plane, Quantised, bits, fit, plane};
use crate::simd::Simd;

/// The format `Q5_0`.
#[derive(Clone, Copy, Default)]
pub struct Q5_0;

const QH: usize = 2;
const QS: usize = 6;

impl BlockFormat for Q5_0 {
    const BLOCK: usize = 32;
    const GROUP: usize = 32;
    const BYTES: usize = 22;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2), plane(2, 4, 4), plane(6, 16, 4)];
    const ENCODE_NMSE: f64 = 1.64e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (i, o) in out.iter_mut().enumerate() {
            let q = bits::nibble(&block[QS..], i) | bits::bit(&block[QH..QS], i) << 4;
            *o = d * (f32::from(q) - 16.0);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        let fit = fit::scaled::<S, fit::Signed<16>, 32>(s, values);
        for (lane, block) in blocks.chunks_exact_mut(Self::BYTES).enumerate() {
            block[..2].copy_from_slice(&fit.d[lane].to_le_bytes());
            bits::set_bits(&mut block[QH..QS], |i| fit.codes[i][lane] as u8 >> 4);
            bits::set_nibbles(&mut block[QS..], |i| fit.codes[i][lane] as u8 & 15);
        }
    }
}

impl Quantised for Q5_0 {
    const LARGEST: i32 = 31;
    const ZERO: i32 = 16;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], _g: usize) -> [S::Codes; 8] {
        bits::or(s, bits::nibble_codes(s, tile, QS), bits::single_bits(s, tile, QH, 4))
    }
}

//! `Q5_0`: 32 codes of 5 bits and one f16 scale. value = d · (q − 16).
//!
//! Block (22 bytes): `d` f16, `qh` 4 bytes: bit `i` of the little-endian number is the high bit of element `i`,
//! `qs` 16 bytes: byte `i` holds element `i` in its low and `16 + i` in its high nibble.

use super::{BlockFormat, Plane, Quantised, Scale, bits, fit};
use crate::simd::Simd;

/// The format `Q5_0`.
#[derive(Clone, Copy, Default)]
pub struct Q5_0;

const QH: usize = 2;
const QS: usize = 6;

impl BlockFormat for Q5_0 {
    const BLOCK: usize = 32;
    const BYTES: usize = 22;
    const PLANES: &'static [Plane] = &[Plane { start: 0, bytes: 2, unit: 2 }, Plane { start: 2, bytes: 4, unit: 4 }, Plane { start: 6, bytes: 16, unit: 4 }];
    const ENCODE_NMSE: f64 = 1.7e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (i, o) in out.iter_mut().enumerate() {
            let q = bits::nibble(&block[QS..], i) | bits::bit(&block[QH..QS], i) << 4;
            *o = d * (f32::from(q) - 16.0);
        }
    }

    fn encode(values: &[f32], block: &mut [u8]) {
        let d = fit::put_f16(block, 0, fit::symmetric(values, 16.0));
        let code = |i: usize| (fit::quantise(values[i], d, -16, 15) + 16) as u8;
        bits::set_bits(&mut block[QH..QS], |i| code(i) >> 4);
        bits::set_nibbles(&mut block[QS..], |i| code(i) & 15);
    }
}

impl Quantised for Q5_0 {
    const GROUP: usize = 32;
    const SIGNED: bool = false;
    const ZERO: i32 = 16;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], _g: usize) -> [S::Codes; 8] {
        bits::or(s, bits::nibble_codes(s, tile, QS), bits::fifth_bits(s, tile, QH))
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], _g: usize) -> [Scale<S>; 2] {
        [Scale { scale: s.load_f16(tile, 0), min: s.splat(0.0) }; 2]
    }
}

//! `Q4_1`: 32 nibbles, an f16 scale and an f16 lowest value. value = d · q + m.
//!
//! Block (20 bytes): `d` f16, `m` f16, `qs` 16 bytes: byte `i` holds element `i` in its low and `16 + i` in its high
//! nibble.

use super::{BlockFormat, Plane, Quantised, Scale, bits, fit};
use crate::simd::Simd;

/// The format `Q4_1`.
#[derive(Clone, Copy, Default)]
pub struct Q4_1;

const QS: usize = 4;

impl BlockFormat for Q4_1 {
    const BLOCK: usize = 32;
    const BYTES: usize = 20;
    const PLANES: &'static [Plane] = &[Plane { start: 0, bytes: 4, unit: 2 }, Plane { start: 4, bytes: 16, unit: 4 }];
    const ENCODE_NMSE: f64 = 5.6e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        let (d, m) = (bits::f16_at(block, 0), bits::f16_at(block, 2));
        for (i, o) in out.iter_mut().enumerate() {
            *o = d * f32::from(bits::nibble(&block[QS..], i)) + m;
        }
    }

    fn encode(values: &[f32], block: &mut [u8]) {
        let (d, m) = fit::affine(values, 15.0, f32::MAX);
        let (d, m) = (fit::put_f16(block, 0, d), fit::put_f16(block, 2, m));
        bits::set_nibbles(&mut block[QS..], |i| fit::quantise(values[i] - m, d, 0, 15) as u8);
    }
}

impl Quantised for Q4_1 {
    const GROUP: usize = 32;
    const SIGNED: bool = false;
    const ZERO: i32 = 0;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], _g: usize) -> [S::Codes; 8] {
        bits::nibble_codes(s, tile, QS)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], _g: usize) -> [Scale<S>; 2] {
        // The product with −1 keeps the sign of a zero, which 0 − m would lose.
        let min = s.mul(s.load_f16(tile, 32), s.splat(-1.0));
        [Scale { scale: s.load_f16(tile, 0), min }; 2]
    }
}

//! `IQ4_NL`: 32 nibbles that index a table of unevenly spaced values, and one f16 scale. value = d · VALUES\[q\].
//!
//! Block (18 bytes): `d` f16, `qs` 16 bytes: byte `i` holds element `i` in its low and `16 + i` in its high nibble.

use super::{BlockFormat, Plane, Quantised, Scale, bits, fit};
use crate::simd::Simd;

/// The format `IQ4_NL`.
#[derive(Clone, Copy, Default)]
pub struct IQ4_NL;

/// The value of each code, ascending: closer together around zero, where weights are dense.
pub(super) const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

const QS: usize = 2;

/// The code whose value is nearest to `x`.
pub(super) fn nearest(x: f32) -> u8 {
    VALUES.windows(2).filter(|pair| 2.0 * x > f32::from(pair[0]) + f32::from(pair[1])).count() as u8
}

/// The scale that fits the values best.
pub(super) fn fit(values: &[f32]) -> f32 {
    fit::linear(values, fit::extreme(values) / f32::from(VALUES[0]), |x| f32::from(VALUES[usize::from(nearest(x))]))
}

impl BlockFormat for IQ4_NL {
    const BLOCK: usize = 32;
    const BYTES: usize = 18;
    const PLANES: &'static [Plane] = &[Plane { start: 0, bytes: 2, unit: 2 }, Plane { start: 2, bytes: 16, unit: 4 }];
    const ENCODE_NMSE: f64 = 5.9e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (i, o) in out.iter_mut().enumerate() {
            *o = d * f32::from(VALUES[usize::from(bits::nibble(&block[QS..], i))]);
        }
    }

    fn encode(values: &[f32], block: &mut [u8]) {
        let d = fit::put_f16(block, 0, fit(values));
        bits::set_nibbles(&mut block[QS..], |i| nearest(values[i] / d));
    }
}

impl Quantised for IQ4_NL {
    const GROUP: usize = 32;
    const SIGNED: bool = true;
    const ZERO: i32 = 0;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], _g: usize) -> [S::Codes; 8] {
        bits::lookup_codes(s, tile, QS, &VALUES)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], _g: usize) -> [Scale<S>; 2] {
        [Scale { scale: s.load_f16(tile, 0), min: s.splat(0.0) }; 2]
    }
}

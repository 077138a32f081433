//! `MXFP4`: 32 E2M1 floats and one E8M0 scale (OCP Microscaling Formats 1.0). value = 2^(e − 128) · VALUES\[q\].
//!
//! Block (17 bytes): `e` u8, `qs` 16 bytes: byte `i` holds element `i` in its low and `16 + i` in its high nibble.
//! The table holds the E2M1 values doubled, to be integers, and the scale is halved in return.

use super::{BlockFormat, Plane, Quantised, Scale, bits};
use crate::simd::Simd;

/// The format `MXFP4`.
#[derive(Clone, Copy, Default)]
pub struct MXFP4;

/// Twice the value of each code; bit 3 is the sign.
const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

const QS: usize = 1;

/// 2^(e − 128): subnormal for e < 2. The reference decodes 255, NaN by the standard, as the power of two it would be.
fn half_scale(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

/// The code whose value is nearest to `x`, in doubled units.
fn nearest(x: f32) -> u8 {
    let magnitude = VALUES[..8].windows(2).filter(|pair| 2.0 * x.abs() > f32::from(pair[0] + pair[1])).count() as u8;
    if x < 0.0 { magnitude | 8 } else { magnitude }
}

impl BlockFormat for MXFP4 {
    const BLOCK: usize = 32;
    const BYTES: usize = 17;
    const PLANES: &'static [Plane] = &[Plane { start: 0, bytes: 1, unit: 1 }, Plane { start: 1, bytes: 16, unit: 4 }];
    const ENCODE_NMSE: f64 = 1.31e-2;

    fn decode(block: &[u8], out: &mut [f32]) {
        let scale = half_scale(block[0]);
        for (i, o) in out.iter_mut().enumerate() {
            *o = scale * f32::from(VALUES[usize::from(bits::nibble(&block[QS..], i))]);
        }
    }

    fn encode(values: &[f32], block: &mut [u8]) {
        // The standard's exponent puts the largest value at 4 … 8 of a largest code of 6; one more may fit better.
        // Above 252, the largest code would be infinite.
        let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        let e = ((largest.to_bits() >> 23) as u8).saturating_sub(2).min(252);
        let error = |e: u8| -> f64 {
            let scale = half_scale(e);
            let one = |v: &f32| f64::from(*v) - f64::from(scale) * f64::from(VALUES[usize::from(nearest(v / scale))]);
            values.iter().map(|v| one(v).powi(2)).sum()
        };
        let e = if e < 252 && error(e + 1) < error(e) { e + 1 } else { e };
        let scale = half_scale(e);
        block[0] = e;
        bits::set_nibbles(&mut block[QS..], |i| nearest(values[i] / scale));
    }
}

impl Quantised for MXFP4 {
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
        let e = s.load_u8(tile, 0);
        let one = s.splat_i32(1);
        let normal = s.shl_i32(s.add_i32(e, s.splat_i32(-1)), 23);
        let subnormal = s.shl_i32(s.add_i32(e, one), 21);
        [Scale { scale: s.as_f32(s.select_gt(e, one, normal, subnormal)), min: s.splat(0.0) }; 2]
    }
}

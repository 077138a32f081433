//! `MXFP4`: 32 E2M1 floats and one E8M0 scale (OCP Microscaling Formats 1.0). value = 2^(e − 128) · VALUES\[q\].
//!
//! Block (17 bytes): `e` u8, `qs` 16 bytes: byte `i` holds element `i` in its low and `16 + i` in its high nibble.
//! The table holds the E2M1 values doubled, to be integers, and the scale is halved in return.

use super::{BlockFormat, Plane, Quantised, bits, plane};
use crate::simd::Simd;

/// The format `MXFP4`.
#[derive(Clone, Copy, Default)]
pub struct MXFP4;

/// Twice the value of each code; bit 3 is the sign.
pub(super) const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

const QS: usize = 1;

/// 2^(e − 128): subnormal for e < 2. The reference decodes 255, NaN by the standard, as the power of two it would be.
fn half_scale(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

/// The element magnitude nearest to `x ≥ 0`, in doubled units.
#[inline(always)]
pub(super) fn nearest<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let mut nearest = s.splat(0.0);
    for pair in VALUES[..8].windows(2) {
        let middle = s.splat(0.5 * f32::from(pair[0] + pair[1]));
        nearest = s.select_lt(middle, x, s.splat(f32::from(pair[1])), nearest);
    }
    nearest
}

/// The codes of the E2M1 values nearest to 16 values, in units of half the scale.
#[inline(always)]
pub(super) fn nearest_codes<S: Simd>(s: S, values: &[f32], half: f32, codes: &mut [u8]) {
    let x = s.div(s.load_f32(values, 0), s.splat(half));
    let mut magnitudes = [0.0; 16];
    s.store_f32(nearest(s, s.max(x, s.sub(s.splat(0.0), x))), &mut magnitudes, 0);
    for ((code, magnitude), value) in codes.iter_mut().zip(magnitudes).zip(values) {
        *code = code_of(magnitude, *value);
    }
}

/// The code of a magnitude of the table, with the sign of a value.
fn code_of(magnitude: f32, value: f32) -> u8 {
    // A magnitude's place in the table.
    let code = VALUES[..8].iter().filter(|&&v| f32::from(v) < magnitude).count() as u8;
    if value < 0.0 { code | 8 } else { code }
}

/// Squared error of two times 16 values at a scale, in units of its square, and their nearest magnitudes.
#[inline(always)]
fn at_scale<S: Simd>(s: S, values: &[f32], scale: f32) -> (f32, [f32; 32]) {
    let mut error = s.splat(0.0);
    let mut magnitudes = [0.0; 32];
    for half in [0, 16] {
        let x = s.div(s.load_f32(values, half), s.splat(scale));
        let x = s.max(x, s.sub(s.splat(0.0), x));
        let q = nearest(s, x);
        let off = s.sub(x, q);
        error = s.add(error, s.mul(off, off));
        s.store_f32(q, &mut magnitudes, half);
    }
    (s.to_array(error).iter().sum(), magnitudes)
}

/// The standard's exponent puts the largest value at 4 … 8 of a largest code of 6; one more may fit better. Above 252,
/// the largest code would be infinite.
#[inline(always)]
fn encode_block<S: Simd>(s: S, values: &[f32], block: &mut [u8]) {
    let largest = values.iter().fold(0f32, |m, v| if v.abs() > m { v.abs() } else { m });
    let mut e = ((largest.to_bits() >> 23) as u8).saturating_sub(2).min(252);
    let (error, mut magnitudes) = at_scale(s, values, half_scale(e));
    if e < 252 {
        let (coarser, others) = at_scale(s, values, half_scale(e + 1));
        // Its unit is twice as large.
        if 4.0 * coarser < error {
            (e, magnitudes) = (e + 1, others);
        }
    }
    block[0] = e;
    bits::set_nibbles(&mut block[QS..], |i| code_of(magnitudes[i], values[i]));
}

impl BlockFormat for MXFP4 {
    const BLOCK: usize = 32;
    const GROUP: usize = 32;
    const BYTES: usize = 17;
    const PLANES: &'static [Plane] = &[plane(0, 1, 1), plane(1, 16, 4)];
    const ENCODE_NMSE: f64 = 1.27e-2;

    fn decode(block: &[u8], out: &mut [f32]) {
        let scale = half_scale(block[0]);
        for (i, o) in out.iter_mut().enumerate() {
            *o = scale * f32::from(VALUES[usize::from(bits::nibble(&block[QS..], i))]);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(Self::BLOCK)) {
            encode_block(s, values, block);
        }
    }
}

/// The values plus 12: codes without a sign take fewer instructions.
pub(super) const CODES: [i8; 16] = {
    let mut codes = VALUES;
    let mut i = 0;
    while i < codes.len() {
        codes[i] += 12;
        i += 1;
    }
    codes
};

impl Quantised for MXFP4 {
    const LARGEST: i32 = 24;
    const ZERO: i32 = 12;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], _g: usize) -> [S::Codes; 8] {
        bits::lookup_codes(s, tile, QS, &CODES)
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        let e = s.load_u8(tile, 0);
        let one = s.splat_i32(1);
        let normal = s.shl_i32(s.add_i32(e, s.splat_i32(-1)), 23);
        let subnormal = s.shl_i32(s.add_i32(e, one), 21);
        s.as_f32(s.select_gt(e, one, normal, subnormal))
    }
}

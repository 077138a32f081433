//! `NVFP4`: E2M1 floats in groups of 16 with one E4M3 scale each, as NVIDIA quantises. value = scale / 2 · VALUES\[q\].
//! Tensors with a scale of their own become [`super::nvfp4_scaled`] when they are loaded.
//!
//! Block (36 bytes): 64 elements. `scales` 4 bytes; `qs` 32 bytes: element `16·p + c` is the low nibble of byte `8·p + c`
//! for `c < 8`, else the high one of byte `8·p + c − 8`. The table is that of `MXFP4`: values are doubled, to be
//! integers. Scales are unsigned: the sign bit is ignored, and 0x7f, NaN by the standard, is 0.

use std::array;

use super::{BlockFormat, Plane, Quantised, Scale, e4m3, mxfp4, plane};
use crate::simd::Simd;

/// The format `NVFP4`.
#[derive(Clone, Copy, Default)]
pub struct NVFP4;

/// Elements of a block.
pub const BLOCK: usize = 64;

/// Groups of a block.
pub const GROUPS: usize = BLOCK / 16;

const QS: usize = GROUPS;

/// What is added to a shifted E4M3 number for half of it: an exponent of f32's bias less one.
const HALF_ONE: u32 = 119 << 23;

/// Half of a group's scale. Of the two codes of NaN, the one with a sign is the 480 that it would be.
pub(super) fn half_scale(bits: u8) -> f32 {
    match bits {
        e4m3::NAN => 0.0,
        _ if bits & 0x7f == e4m3::NAN => 240.0,
        _ => 0.5 * e4m3::decode(bits & 0x7f),
    }
}

/// Byte of `qs`, and shift, of element `i`.
pub(super) const fn place(i: usize) -> (usize, usize) {
    (i / 16 * 8 + i % 8, i % 16 / 8 * 4)
}

/// Half of the smallest E4M3 number above 0.
const SUBNORMAL: f32 = 1.0 / 1024.0;

impl BlockFormat for NVFP4 {
    const BLOCK: usize = BLOCK;
    const GROUP: usize = 16;
    const BYTES: usize = QS + BLOCK / 2;
    // GPUs read planes of 16 bytes.
    const PLANES: &'static [Plane] = &[plane(0, QS, 1), plane(QS, 16, 4), plane(QS + 16, 16, 4)];
    const ENCODE_NMSE: f64 = 6.8e-3;

    fn decode(block: &[u8], out: &mut [f32]) {
        for (i, o) in out.iter_mut().enumerate() {
            let (byte, shift) = place(i);
            let code = block[QS + byte] >> shift & 15;
            *o = half_scale(block[i / 16]) * f32::from(mxfp4::VALUES[usize::from(code)]);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(Self::BLOCK)) {
            let (scales, qs) = block.split_at_mut(QS);
            encode_block(s, values, 1.0, scales, qs);
        }
    }
}

/// Fills `qs`.
pub(super) fn put_codes(qs: &mut [u8], codes: &[u8; BLOCK]) {
    qs.fill(0);
    for (i, code) in codes.iter().enumerate() {
        let (byte, shift) = place(i);
        qs[byte] |= (code & 15) << shift;
    }
}

/// The scale of a tensor whose largest magnitude is `largest`: the largest group scale, 448, times the largest value of a code,
/// 6, is that magnitude. 1 for a tensor of zeros.
pub fn outer_scale(largest: f32) -> f32 {
    if largest > 1e-30 { largest / 448.0 / 6.0 } else { 1.0 }
}

/// Scales that the encoder tries for a group, next to each other.
const TRIALS: usize = 16;

/// Encodes four groups in units of `outer`: their scales, and `qs`.
#[inline(always)]
pub(super) fn encode_block<S: Simd>(s: S, values: &[f32], outer: f32, scales: &mut [u8], qs: &mut [u8]) {
    let mut codes = [0; BLOCK];
    for ((scale, values), codes) in scales.iter_mut().zip(values.chunks_exact(16)).zip(codes.chunks_exact_mut(16)) {
        *scale = best_scale(s, values, outer);
        let half = outer * half_scale(*scale);
        let half = if half > 0.0 { half } else { f32::INFINITY };
        mxfp4::nearest_codes(s, values, half, codes);
    }
    put_codes(qs, &codes);
}

/// The scale of a group with the least squared error. If the largest value is a 6, the error of the others is rarely the least:
/// the scales tried make it a 12, cut to 6, to a 3.
#[inline(always)]
fn best_scale<S: Simd>(s: S, values: &[f32], outer: f32) -> u8 {
    let largest = values.iter().fold(0f32, |m, v| if v.abs() > m { v.abs() } else { m });
    if largest == 0.0 {
        return 0;
    }
    let six = e4m3::encode(largest / outer / 6.0);
    let first = six.saturating_sub(TRIALS as u8 / 2).clamp(1, e4m3::NAN - TRIALS as u8);
    let halves: [f32; TRIALS] = array::from_fn(|i| half_scale(first + i as u8));
    let divisors = s.mul(s.splat(outer), s.load_f32(&halves, 0));
    let mut error = s.splat(0.0);
    for value in values {
        let x = s.div(s.splat(value.abs()), divisors);
        let off = s.sub(x, mxfp4::nearest(s, x));
        error = s.add(error, s.mul(off, off));
    }
    let units = s.load_f32(&halves.map(|half| half / halves[0]), 0);
    let errors = s.to_array(s.mul(error, s.mul(units, units)));
    let best = (1..TRIALS).fold(0, |best, i| if errors[i] < errors[best] { i } else { best });
    first + best as u8
}

/// Writes a block of these codes and of scales that may have a sign, which the codes take. Returns `None` unless `block`
/// has the format's bytes, and if a scale is NaN.
pub fn put_block(scales: [u8; GROUPS], codes: &[u8; BLOCK], block: &mut [u8]) -> Option<()> {
    if block.len() != NVFP4::BYTES || scales.iter().any(|scale| scale & 0x7f == e4m3::NAN) {
        return None;
    }
    let mut signed = *codes;
    for (codes, scale) in signed.chunks_exact_mut(16).zip(scales) {
        // Bit 3 is the sign of a code.
        codes.iter_mut().for_each(|code| *code ^= scale >> 7 << 3);
    }
    block[..QS].copy_from_slice(&scales.map(|scale| scale & 0x7f));
    put_codes(&mut block[QS..], &signed);
    Some(())
}

impl Quantised for NVFP4 {
    const LARGEST: i32 = 24;
    const ZERO: i32 = 12;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        codes_at(s, tile, QS, g)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], g: usize) -> [Scale<S>; 2] {
        two!(half => {
            Scale { scale: half_of(s, s.load_u8(tile, 16 * (2 * g + half))), min: s.splat(0.0) }
        })
    }
}

/// The codes of 32 elements, where `qs` starts at byte `start` of the block.
#[inline(always)]
pub(super) fn codes_at<S: Simd>(s: S, tile: &[u8], start: usize, g: usize) -> [S::Codes; 8] {
    eight!(j => {
        let (byte, shift) = place(32 * g + 4 * j);
        s.lookup(&mxfp4::CODES, s.shr_and(s.load_codes(tile, 16 * (start + byte)), shift as u32, 15))
    })
}

/// [`half_scale`] of 16 rows.
#[inline(always)]
pub(super) fn half_of<S: Simd>(s: S, bits: S::I32) -> S::F32 {
    let nan = s.splat_i32(i32::from(e4m3::NAN));
    let zero = s.splat_i32(0);
    let magnitude = s.and_i32(bits, nan);
    // Bits that are neither above nor below those of NaN are 0.
    let magnitude = s.select_gt(bits, nan, magnitude, s.select_gt(nan, bits, magnitude, zero));
    let normal = s.as_f32(s.add_i32(s.shl_i32(magnitude, 20), s.splat_i32(HALF_ONE as i32)));
    let subnormal = s.mul(s.to_f32(magnitude), s.splat(SUBNORMAL));
    s.select_lt(s.to_f32(magnitude), s.splat(8.0), subnormal, normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_another_size_is_refused() {
        assert_eq!(put_block([0; GROUPS], &[0; BLOCK], &mut [0; 35]), None);
        assert_eq!(put_block([0, 0xff, 0, 0], &[0; BLOCK], &mut [0; NVFP4::BYTES]), None);
        let mut block = [0; NVFP4::BYTES];
        let codes: [u8; BLOCK] = std::array::from_fn(|i| (i % 16) as u8);
        put_block([0x38, 0x40, 0xb8, 0], &codes, &mut block).unwrap();
        let mut values = [0.0; BLOCK];
        NVFP4::decode(&block, &mut values);
        // Scales of 1, 2, −1 and 0.
        assert_eq!([values[7], values[15], values[16 + 1], values[32 + 2], values[63]], [6.0, -6.0, 1.0, -1.0, -0.0]);
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.load_u8(tile, 16 * (2 * g + half))` => `s.load_u8(tile, 16 * 2 * g)`
// [matmul] `s.select_lt(s.to_f32(magnitude), s.splat(8.0), subnormal, normal)` => `normal`
// [matmul] `let magnitude = s.and_i32(bits, nan);` => `let magnitude = bits;`
// [matmul] `s.select_gt(nan, bits, magnitude, zero)` => `s.select_gt(nan, bits, magnitude, magnitude)`
// [matmul] `place(32 * g + 4 * j)` => `place(4 * j)`

//! `NVFP4`: E2M1 floats in groups of 16 with one E4M3 scale each, as NVIDIA quantises. value = scale / 2 · VALUES\[q\].
//! A tensor may have another scale of its own, or one for each expert, which is a tensor beside it.
//!
//! Block (36 bytes): 64 elements. `scales` 4 bytes; `qs` 32 bytes: element `16·p + c` is the low nibble of byte `8·p + c`
//! for `c < 8`, else the high one of byte `8·p + c − 8`. The table is that of `MXFP4`: values are doubled, to be
//! integers. Scales are unsigned: the sign bit is ignored, and 0x7f, NaN by the standard, is 0.

use super::{BlockFormat, Plane, Quantised, Scale, e4m3, mxfp4, plane};
use crate::simd::Simd;
use crate::{eight, two};

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

/// Half of a scale. Of the two codes of NaN, the one with a sign is the 480 that it would be.
fn half_scale(bits: u8) -> f32 {
    match bits {
        e4m3::NAN => 0.0,
        _ if bits & 0x7f == e4m3::NAN => 240.0,
        _ => 0.5 * e4m3::decode(bits & 0x7f),
    }
}

/// Byte of `qs`, and shift, of element `i`.
const fn place(i: usize) -> (usize, usize) {
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
    const ENCODE_NMSE: f64 = 9.6e-3;
    const READ_ONLY: bool = true;

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
            let mut codes = [0; BLOCK];
            for (g, values) in values.chunks_exact(16).enumerate() {
                let largest = values.iter().fold(0f32, |m, v| if v.abs() > m { v.abs() } else { m });
                // The largest value of a code is 6.
                block[g] = e4m3::encode(largest / 6.0);
                let half = half_scale(block[g]);
                let half = if half > 0.0 { half } else { f32::INFINITY };
                mxfp4::nearest_codes(s, values, half, &mut codes[16 * g..][..16]);
            }
            put_codes(block, &codes);
        }
    }
}

fn put_codes(block: &mut [u8], codes: &[u8; BLOCK]) {
    block[QS..].fill(0);
    for (i, code) in codes.iter().enumerate() {
        let (byte, shift) = place(i);
        block[QS + byte] |= (code & 15) << shift;
    }
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
    put_codes(block, &signed);
    Some(())
}

impl Quantised for NVFP4 {
    const LARGEST: i32 = 24;
    const ZERO: i32 = 12;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        eight!(j => {
            let (byte, shift) = place(32 * g + 4 * j);
            s.lookup(&mxfp4::CODES, s.shr_and(s.load_codes(tile, 16 * (QS + byte)), shift as u32, 15))
        })
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], g: usize) -> [Scale<S>; 2] {
        let (nan, zero) = (s.splat_i32(i32::from(e4m3::NAN)), s.splat_i32(0));
        two!(half => {
            let bits = s.load_u8(tile, 16 * (2 * g + half));
            let magnitude = s.and_i32(bits, nan);
            // Bits that are neither above nor below those of NaN.
            let magnitude = s.select_gt(bits, nan, magnitude, s.select_gt(nan, bits, magnitude, zero));
            let normal = s.as_f32(s.add_i32(s.shl_i32(magnitude, 20), s.splat_i32(HALF_ONE as i32)));
            let subnormal = s.mul(s.to_f32(magnitude), s.splat(SUBNORMAL));
            let scale = s.select_lt(s.to_f32(magnitude), s.splat(8.0), subnormal, normal);
            Scale { scale, min: s.splat(0.0) }
        })
    }
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

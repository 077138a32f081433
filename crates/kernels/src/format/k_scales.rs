//! The head that `Q4_K` and `Q5_K` share: `d` f16, `dmin` f16 and eight 6-bit scales and minima in 12 bytes.
//!
//! Group `g < 4`: scale in the low 6 bits of byte `g`, minimum in the low 6 bits of byte `g + 4`.
//! Group `g ≥ 4`: low 4 bits of scale and minimum in the nibbles of byte `g + 4`, high 2 bits of the scale in the
//! top of byte `g − 4`, of the minimum in the top of byte `g`.

use crate::format::{Scale, bits, fit};
use crate::simd::Simd;

/// First of the 12 bytes in the block.
const SCALES: usize = 4;
/// Bytes of the head.
pub(crate) const BYTES: usize = 16;

/// Scale and minimum of group `g` of a block: d · scale and dmin · min.
pub(crate) fn scale_min(block: &[u8], g: usize) -> (f32, f32) {
    let bytes = &block[SCALES..BYTES];
    let (scale, min) = if g < 4 {
        (bytes[g] & 63, bytes[g + 4] & 63)
    } else {
        let low = bytes[g + 4];
        (low & 15 | bytes[g - 4] >> 6 << 4, low >> 4 | bytes[g] >> 6 << 4)
    };
    (bits::f16_at(block, 0) * f32::from(scale), bits::f16_at(block, 2) * f32::from(min))
}

/// A byte of the scales, for 16 rows.
#[inline(always)]
fn byte<S: Simd>(s: S, tile: &[u8], i: usize) -> S::I32 {
    s.load_u8(tile, 16 * (SCALES + i))
}

/// The top two bits of a byte, above four others.
#[inline(always)]
fn top_two<S: Simd>(s: S, byte: S::I32) -> S::I32 {
    s.shl_i32(s.shr_i32(byte, 6), 4)
}

/// The scale of group `g`, without `d`, for the 16 rows of a tile.
#[inline(always)]
pub(crate) fn scale_lanes<S: Simd>(s: S, tile: &[u8], g: usize) -> S::I32 {
    if g < 4 {
        s.and_i32(byte(s, tile, g), s.splat_i32(63))
    } else {
        s.or_i32(s.and_i32(byte(s, tile, g + 4), s.splat_i32(15)), top_two(s, byte(s, tile, g - 4)))
    }
}

/// Scale and minimum of group `g` for the 16 rows of a tile.
#[inline(always)]
pub(crate) fn scale_min_lanes<S: Simd>(s: S, tile: &[u8], g: usize) -> Scale<S> {
    let min = if g < 4 {
        s.and_i32(byte(s, tile, g + 4), s.splat_i32(63))
    } else {
        s.or_i32(s.shr_i32(byte(s, tile, g + 4), 4), top_two(s, byte(s, tile, g)))
    };
    let scale = s.to_f32(scale_lanes(s, tile, g));
    Scale { scale: s.mul(s.load_f16(tile, 0), scale), min: s.mul(s.load_f16(tile, 32), s.to_f32(min)) }
}

/// Writes the head of block `b` of a batch.
pub(crate) fn put(fit: &fit::SuperAffine<32>, b: usize, block: &mut [u8]) {
    block[..2].copy_from_slice(&fit.d[8 * b].to_le_bytes());
    block[2..4].copy_from_slice(&fit.dmin[8 * b].to_le_bytes());
    let bytes = &mut block[SCALES..BYTES];
    bytes.fill(0);
    for g in 0..8 {
        let (scale, min) = (fit.scale[8 * b + g] as u8, fit.min[8 * b + g] as u8);
        if g < 4 {
            bytes[g] |= scale;
            bytes[g + 4] |= min;
        } else {
            bytes[g + 4] = scale & 15 | min << 4;
            bytes[g - 4] |= scale >> 4 << 6;
            bytes[g] |= min >> 4 << 6;
        }
    }
}

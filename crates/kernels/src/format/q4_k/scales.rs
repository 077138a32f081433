//! The 6-bit scales and minima that `Q4_K` and `Q5_K` share: 16 numbers of 6 bits in 12 bytes.
//!
//! Group `g < 4`: scale in the low 6 bits of byte `g`, minimum in the low 6 bits of byte `g + 4`.
//! Group `g ≥ 4`: low 4 bits of scale and minimum in the nibbles of byte `g + 4`, high 2 bits of the scale in the
//! top of byte `g − 4`, of the minimum in the top of byte `g`.

use crate::simd::Simd;

/// Scale and minimum of group `g` from the 12 bytes of one block.
#[inline]
pub(crate) fn scale_min(bytes: &[u8], g: usize) -> (u8, u8) {
    if g < 4 {
        (bytes[g] & 63, bytes[g + 4] & 63)
    } else {
        let low = bytes[g + 4];
        (low & 15 | bytes[g - 4] >> 6 << 4, low >> 4 | bytes[g] >> 6 << 4)
    }
}

/// The same for the 16 rows of a tile whose scale bytes start at `at`.
#[inline(always)]
pub(crate) fn scale_min_lanes<S: Simd>(s: S, tile: &[u8], at: usize, g: usize) -> (S::I32, S::I32) {
    let byte = |i: usize| s.load_u8(tile, at + 16 * i);
    if g < 4 {
        let six = s.splat_i32(63);
        (s.and_i32(byte(g), six), s.and_i32(byte(g + 4), six))
    } else {
        let low = byte(g + 4);
        let top = |v: S::I32| s.shl_i32(s.shr_i32(v, 6), 4);
        let scale = s.or_i32(s.and_i32(low, s.splat_i32(15)), top(byte(g - 4)));
        let min = s.or_i32(s.shr_i32(low, 4), top(byte(g)));
        (scale, min)
    }
}

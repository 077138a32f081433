//! What the formats of ik_llama.cpp share. The codes of a group stand for the values of a table, which are closer together
//! around zero. A bit of each group selects the table itself or the *shifted* one, whose values are all larger by a constant.
//!
//! The tables and the places of all bits are those of ik_llama.cpp (August 2026).

use super::bits;
use super::fit::InTable;
use crate::simd::Simd;

/// The values of codes of 2 bits, and the shift of their table.
pub(super) const VALUES_2: [i8; 4] = [-31, -13, 1, 17];
pub(super) const SHIFT_2: i8 = 5;

/// The values of codes of 3 bits, and the shift of their table.
pub(super) const VALUES_3: [i8; 8] = [-63, -40, -23, -10, 1, 13, 28, 47];
pub(super) const SHIFT_3: i8 = 4;

/// The shift of the table of codes of 4 bits, [`super::iq4_nl::VALUES`].
pub(super) const SHIFT_4: i8 = 4;

/// The values of codes of 5 bits, and the shift of their table.
pub(super) const VALUES_5: [i8; 32] = [
    -126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6, -1, 5, 11, 17, 23, 29, 36, 43,
    51, 59, 68, 77, 87, 97, 109, 121,
];
pub(super) const SHIFT_5: i8 = 2;

/// A table of up to 8 values followed by the shifted one, as a table of 16.
pub(super) const fn both<const N: usize>(values: [i8; N], shift: i8) -> [i8; 16] {
    let mut both = [0; 16];
    let mut i = 0;
    while i < N {
        both[i] = values[i];
        both[N + i] = values[i] + shift;
        i += 1;
    }
    both
}

/// `number` in each byte of the lanes whose bit `n` is set, and 0 in the others.
#[inline(always)]
pub(super) fn where_bit<S: Simd>(s: S, bits: S::I32, n: usize, number: i8) -> S::Codes {
    let bit = s.and_i32(s.shr_i32(bits, n as u32), s.splat_i32(1));
    s.as_codes(s.mul_i32(bit, s.splat_i32(i32::from(number) * 0x0101_0101)))
}

/// Codes of 32 elements plus the shift of each sixteen.
#[inline(always)]
pub(super) fn add_shifts<S: Simd>(s: S, codes: [S::Codes; 8], shifts: [S::Codes; 2]) -> [S::Codes; 8] {
    eight!(j => s.add_codes(codes[j], shifts[j / 4]))
}

/// Both halves of a table of 32.
pub(super) const fn halves(table: &[i8; 32]) -> [[i8; 16]; 2] {
    let mut halves = [[0; 16]; 2];
    let mut i = 0;
    while i < 16 {
        halves[0][i] = table[i];
        halves[1][i] = table[16 + i];
        i += 1;
    }
    halves
}

/// Entries of a table of 32, whose [`halves`] are given, for nibbles and a fifth bit, which is bit `n` of its byte.
#[inline(always)]
pub(super) fn look_up_32<S: Simd>(
    s: S,
    halves: &[[i8; 16]; 2],
    nibbles: S::Codes,
    bytes: S::Codes,
    n: usize,
) -> S::Codes {
    // Bits that come from the neighbouring byte are below bit 7.
    s.lookup_half(halves, nibbles, s.as_codes(s.shl_i32(s.as_i32(bytes), 7 - n as u32)))
}

/// The first 16 bytes of `IQ4_K` and `IQ5_K`: `d` f16, `extra` u16 (bit `t`: group `t` has the shifted table), `scales_h` 4
/// bytes and `scales_l` 8 bytes: the high 2 and the low 4 bits of each group's scale, the first group in the lowest bits.
pub(super) mod sixteen {
    use super::*;

    pub(in crate::format) const EXTRA: usize = 2;
    const SCALES_H: usize = 4;
    const SCALES_L: usize = 8;
    pub(in crate::format) const BYTES: usize = 16;
    /// What is subtracted from a scale.
    const ZERO: i32 = 32;

    /// The scale of group `t`, and whether it has the shifted table.
    pub(in crate::format) fn get(block: &[u8], t: usize) -> (f32, bool) {
        let low = i32::from(block[SCALES_L + t / 2] >> (4 * (t % 2)) & 15);
        let high = i32::from(block[SCALES_H + t / 4] >> (2 * (t % 4)) & 3);
        let scale = bits::f16_at(block, 0) * ((low | high << 4) - ZERO) as f32;
        (scale, block[EXTRA + t / 8] >> (t % 8) & 1 == 1)
    }

    /// Writes the bytes, which must be zero.
    pub(in crate::format) fn put(fit: &InTable, block: &mut [u8]) {
        super::super::fit::put_f16(block, 0, fit.d);
        for t in 0..16 {
            let six = (fit.scale[t] + ZERO) as u8;
            block[SCALES_L + t / 2] |= (six & 15) << (4 * (t % 2));
            block[SCALES_H + t / 4] |= six >> 4 << (2 * (t % 4));
            block[EXTRA + t / 8] |= u8::from(fit.shifted[t]) << (t % 8);
        }
    }

    /// The integer scale of group `t` of 16 rows.
    #[inline(always)]
    pub(in crate::format) fn integer<S: Simd>(s: S, tile: &[u8], t: usize) -> S::I32 {
        let low = s.shr_i32(s.load_u8(tile, 16 * (SCALES_L + t / 2)), 4 * (t as u32 % 2));
        let high = s.shr_i32(s.load_u8(tile, 16 * (SCALES_H + t / 4)), 2 * (t as u32 % 4));
        let (low, high) = (s.and_i32(low, s.splat_i32(15)), s.and_i32(high, s.splat_i32(3)));
        s.add_i32(s.or_i32(low, s.shl_i32(high, 4)), s.splat_i32(-ZERO))
    }

    /// `shift` for the groups of elements `32·g .. 32·g + 32` that have the shifted table.
    #[inline(always)]
    pub(in crate::format) fn shifts<S: Simd>(s: S, tile: &[u8], g: usize, shift: i8) -> [S::Codes; 2] {
        let extra = s.load_u16(tile, 16 * EXTRA);
        two!(half => where_bit(s, extra, 2 * g + half, shift))
    }
}

/// The first 12 bytes of `IQ4_KS` and `IQ5_KS`: `d` f32, and a byte for each group of 32: bit 0 selects the shifted table, and
/// the scale is the other bits less 127.
pub(super) mod odd {
    use super::*;

    pub(in crate::format) const SCALES: usize = 4;
    pub(in crate::format) const BYTES: usize = 12;
    const ZERO: i32 = 127;

    /// The scale of group `g`, and whether it has the shifted table.
    pub(in crate::format) fn get(block: &[u8], g: usize) -> (f32, bool) {
        let d = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        let byte = block[SCALES + g];
        (d * (i32::from(byte & 254) - ZERO) as f32, byte & 1 == 1)
    }

    /// Writes the bytes.
    pub(in crate::format) fn put(fit: &InTable, block: &mut [u8]) {
        block[..SCALES].copy_from_slice(&fit.d.to_le_bytes());
        for g in 0..8 {
            block[SCALES + g] = (fit.scale[g] + ZERO) as u8 | u8::from(fit.shifted[g]);
        }
    }

    /// The super-block's scale of 16 rows.
    #[inline(always)]
    pub(in crate::format) fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.load_f32_bytes(tile, 0)
    }

    /// The integer scale of group `g` of 16 rows.
    #[inline(always)]
    pub(in crate::format) fn integer<S: Simd>(s: S, tile: &[u8], g: usize) -> S::I32 {
        let byte = s.load_u8(tile, 16 * (SCALES + g));
        s.add_i32(s.and_i32(byte, s.splat_i32(254)), s.splat_i32(-ZERO))
    }

    /// `shift` if group `g` has the shifted table.
    #[inline(always)]
    pub(in crate::format) fn shifts<S: Simd>(s: S, tile: &[u8], g: usize, shift: i8) -> [S::Codes; 2] {
        [where_bit(s, s.load_u8(tile, 16 * (SCALES + g)), 0, shift); 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Portable;

    #[test]
    fn halves_give_every_entry() {
        let halves = halves(&VALUES_5);
        for (code, n) in (0..32_u8).flat_map(|code| (0..8).map(move |n| (code, n))) {
            // All other bits are the opposite.
            let byte = if code >> 4 == 1 { 1 << n } else { !(1 << n) };
            let [nibbles, bytes] = [code & 15, byte].map(|byte| Portable.splat_codes(byte));
            let mut found = [0; 64];
            Portable.store_codes(look_up_32(Portable, &halves, nibbles, bytes, n), &mut found, 0);
            assert_eq!(found, [VALUES_5[usize::from(code)] as u8; 64]);
        }
    }
}

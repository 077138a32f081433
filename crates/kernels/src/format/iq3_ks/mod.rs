//! `IQ3_KS` of ik_llama.cpp: super-blocks of 256 elements in 8 groups of 32.
//! value = d · (scale − 16) · (VALUES_3\[q\] + 4, if the group has the shifted table of [`super::shifted`]).
//!
//! Block (104 bytes): `d` f16, `extra` u16 (bit `g`: the highest bit of group `g`'s scale, bit `8 + g`: it has the shifted
//! table), `scales` 4 bytes (nibble `g / 4` of byte `g % 4`: its low 4 bits), `qs` 64 bytes, `qh` 32 bytes. Element
//! `128·h + 32·c + i` has its low bits at bit `2·c` of `qs` byte `32·h + i` and its high bit at bit `4·h + c` of `qh` byte `i`.
//! Files have `d` once for each row, before its blocks: see [`super::rows`].

use super::bits::{self, Field};
use super::shifted::{SHIFT_3, VALUES_3, both, where_bit};
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ3_KS`.
#[derive(Clone, Copy, Default)]
pub struct IQ3_KS;

const EXTRA: usize = 2;
const SCALES: usize = 4;
const QS: usize = 8;
const QH: usize = 72;
const CODES: [i8; 16] = both(VALUES_3, SHIFT_3);
const TABLE: fit::Table<1, 8> = fit::Table {
    entries: {
        let mut entries = [[0]; 8];
        let mut i = 0;
        while i < 8 {
            entries[i] = [VALUES_3[i]];
            i += 1;
        }
        entries
    },
    shift: SHIFT_3,
};

/// Integer scales of five bits.
pub(super) const LEVELS: fit::Levels = fit::Levels { lowest: -16, highest: 15, step: 1 };

#[inline(always)]
fn low(g: usize) -> Field {
    Field { start: QS + 32 * (g / 4), shift: 2 * (g % 4), bits: 2 }
}

#[inline(always)]
fn high(g: usize) -> Field {
    Field { start: QH, shift: g, bits: 1 }
}

impl BlockFormat for IQ3_KS {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 104;
    const PLANES: &'static [Plane] = &[plane(0, 4, 2), plane(4, 4, 1), plane(8, 64, 4), plane(72, 32, 4)];
    const ENCODE_NMSE: f64 = 2.36e-2;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let five = block[SCALES + g % 4] >> (4 * (g / 4)) & 15 | (block[EXTRA] >> g & 1) << 4;
            let scale = d * (f32::from(five) - 16.0);
            let shifted = block[EXTRA + 1] >> g & 1;
            for (i, o) in out.iter_mut().enumerate() {
                let q = low(g).get(block, i) | high(g).get(block, i) << 2 | shifted << 3;
                *o = scale * f32::from(CODES[usize::from(q)]);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(256)) {
            let fit = fit::in_table(values, 32, &TABLE, &LEVELS, true);
            block.fill(0);
            fit::put_f16(block, 0, fit.d);
            for g in 0..8 {
                let five = (fit.scale[g] + 16) as u8;
                block[SCALES + g % 4] |= (five & 15) << (4 * (g / 4));
                block[EXTRA] |= five >> 4 << g;
                block[EXTRA + 1] |= u8::from(fit.shifted[g]) << g;
            }
            for (i, code) in fit.code.iter().enumerate() {
                low(i / 32).set(block, i % 32, *code);
                high(i / 32).set(block, i % 32, code >> 2);
            }
        }
    }
}

impl Quantised for IQ3_KS {
    const SIGNED: bool = true;
    const LARGEST: i32 = 63;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let shifted = where_bit(s, s.load_u16(tile, 16 * EXTRA), 8 + g, 8);
        let codes = bits::or(s, low(g).codes(s, tile, 0), high(g).codes(s, tile, 2));
        eight!(j => s.lookup(&CODES, s.or(codes[j], shifted)))
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        let low = s.shr_i32(s.load_u8(tile, 16 * (SCALES + g % 4)), 4 * (g as u32 / 4));
        let high = s.shr_i32(s.load_u16(tile, 16 * EXTRA), g as u32);
        [five_bits(s, low, high); 2]
    }
}

/// An integer scale: the lowest four bits of `low`, with the lowest one of `high` above them, less 16.
#[inline(always)]
pub(super) fn five_bits<S: Simd>(s: S, low: S::I32, high: S::I32) -> S::I32 {
    let (low, high) = (s.and_i32(low, s.splat_i32(15)), s.and_i32(high, s.splat_i32(1)));
    s.add_i32(s.or_i32(low, s.shl_i32(high, 4)), s.splat_i32(-16))
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `8 + g, 8)` => `g, 8)`
// [matmul] `4 * (g as u32 / 4)` => `4 * (g as u32 % 2)`
// [formats] `Field { start: QH, shift: g, bits: 1 }` => `Field { start: QH, shift: 7 - g, bits: 1 }`

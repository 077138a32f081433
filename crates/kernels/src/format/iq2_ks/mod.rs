//! `IQ2_KS` of ik_llama.cpp: super-blocks of 256 elements in 8 groups of 32.
//! value = d · (scale − 16) · (VALUES_2\[q\] + 5, if the group has the shifted table of [`super::shifted`]).
//!
//! Block (72 bytes): `d` f16, `extra` u16 (bit `g`: group `g` has the shifted table, bit `8 + g`: the highest bit of its
//! scale), `scales` 4 bytes (nibble `g % 2` of byte `g / 2`: its low 4 bits), `qs` 64 bytes. Element `128·h + 32·c + i` is at
//! bit `2·c` of `qs` byte `32·h + i`. Files have `d` once for each row, before its blocks: see [`super::rows`].

use super::bits::{self, Field};
use super::iq3_ks::{LEVELS, five_bits};
use super::shifted::{SHIFT_2, VALUES_2, both, where_bit};
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ2_KS`.
#[derive(Clone, Copy, Default)]
pub struct IQ2_KS;

const EXTRA: usize = 2;
const SCALES: usize = 4;
const QS: usize = 8;
const CODES: [i8; 16] = both(VALUES_2, SHIFT_2);
const TABLE: fit::Table<1, 4> =
    fit::Table { entries: [[VALUES_2[0]], [VALUES_2[1]], [VALUES_2[2]], [VALUES_2[3]]], shift: SHIFT_2 };

#[inline(always)]
fn code(g: usize) -> Field {
    Field { start: QS + 32 * (g / 4), shift: 2 * (g % 4), bits: 2 }
}

impl BlockFormat for IQ2_KS {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 72;
    const PLANES: &'static [Plane] = &[plane(0, 4, 2), plane(4, 4, 1), plane(8, 64, 4)];
    const ENCODE_NMSE: f64 = 1e-1;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let five = block[SCALES + g / 2] >> (4 * (g % 2)) & 15 | (block[EXTRA + 1] >> g & 1) << 4;
            let scale = d * (f32::from(five) - 16.0);
            let shifted = block[EXTRA] >> g & 1;
            for (i, o) in out.iter_mut().enumerate() {
                *o = scale * f32::from(CODES[usize::from(code(g).get(block, i) | shifted << 2)]);
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
                block[SCALES + g / 2] |= (five & 15) << (4 * (g % 2));
                block[EXTRA] |= u8::from(fit.shifted[g]) << g;
                block[EXTRA + 1] |= five >> 4 << g;
            }
            for (i, q) in fit.code.iter().enumerate() {
                code(i / 32).set(block, i % 32, *q);
            }
        }
    }
}

impl Quantised for IQ2_KS {
    const SIGNED: bool = true;
    const LARGEST: i32 = 31;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let shifted = where_bit(s, s.load_u16(tile, 16 * EXTRA), g, 4);
        let codes = code(g).codes(s, tile, 0);
        eight!(j => s.lookup(&CODES, s.or(codes[j], shifted)))
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        let low = s.shr_i32(s.load_u8(tile, 16 * (SCALES + g / 2)), 4 * (g as u32 % 2));
        [five_bits(s, low, s.shr_i32(s.load_u16(tile, 16 * EXTRA), 8 + g as u32)); 2]
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `16 * EXTRA), g, 4)` => `16 * EXTRA), 8 + g, 4)`
// [matmul] `8 + g as u32` => `g as u32`
// [formats] `start: QS + 32 * (g / 4), shift: 2 * (g % 4)` => `start: QS + 32 * (g % 2), shift: 2 * (g / 2)`

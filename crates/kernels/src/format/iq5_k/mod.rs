//! `IQ5_K` of ik_llama.cpp: super-blocks of 256 elements in 16 groups of 16.
//! value = d · scale · (VALUES_5\[q\] + 2, if the group has the shifted table of [`super::shifted`]).
//!
//! Block (176 bytes): the head of [`sixteen`], `qs` 128 bytes: byte `32·c + i` holds the low bits of element `64·c + i` in its
//! low and of `64·c + 32 + i` in its high nibble, `qh` 32 bytes: bit `g` of byte `i` is the high bit of element `32·g + i`.

use super::bits::Field;
use super::iq4_k::LEVELS;
use super::shifted::{SHIFT_5, VALUES_5, add_shifts, halves, look_up_32, sixteen};
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ5_K`.
#[derive(Clone, Copy, Default)]
pub struct IQ5_K;

/// [`VALUES_5`] for the encoders.
pub(super) const TABLE: fit::Table<1, 32> = fit::Table {
    entries: {
        let mut entries = [[0]; 32];
        let mut i = 0;
        while i < 32 {
            entries[i] = [VALUES_5[i]];
            i += 1;
        }
        entries
    },
    shift: SHIFT_5,
};
const HALVES: [[i8; 16]; 2] = halves(&VALUES_5);

/// The bits of elements `32·g ..`, where `qs` and `qh` start at byte `start` of the block: the low ones and the high one.
#[inline(always)]
pub(super) const fn fields(start: usize, g: usize) -> [Field; 2] {
    [
        Field { start: start + 32 * (g / 2), shift: 4 * (g % 2), bits: 4 },
        Field { start: start + 128, shift: g, bits: 1 },
    ]
}

/// The code of element `32·g + i`.
pub(super) fn code(block: &[u8], start: usize, g: usize, i: usize) -> usize {
    let [low, high] = fields(start, g).map(|field| field.get(block, i));
    usize::from(low | high << 4)
}

/// Writes the codes of a super-block; the bytes must be zero.
pub(super) fn put_codes(block: &mut [u8], start: usize, codes: &[u8; 256]) {
    for (i, code) in codes.iter().enumerate() {
        let [low, high] = fields(start, i / 32);
        low.set(block, i % 32, *code);
        high.set(block, i % 32, code >> 4);
    }
}

/// The values of elements `32·g ..` of 16 rows, without shifts.
#[inline(always)]
pub(super) fn values<S: Simd>(s: S, tile: &[u8], start: usize, g: usize) -> [S::Codes; 8] {
    let [low, high] = fields(start, g);
    let low = low.codes(s, tile, 0);
    eight!(j => look_up_32(s, &HALVES, low[j], s.load_codes(tile, 16 * (high.start + 4 * j)), high.shift))
}

impl BlockFormat for IQ5_K {
    const BLOCK: usize = 256;
    const GROUP: usize = 16;
    const BYTES: usize = 176;
    const PLANES: &'static [Plane] =
        &[plane(0, 4, 2), plane(4, 4, 1), plane(8, 8, 1), plane(16, 128, 4), plane(144, 32, 4)];
    const ENCODE_NMSE: f64 = 1.02e-3;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        for (t, out) in out.chunks_exact_mut(16).enumerate() {
            let (scale, shifted) = sixteen::get(block, t);
            let shift = if shifted { SHIFT_5 } else { 0 };
            for (i, o) in out.iter_mut().enumerate() {
                let q = code(block, sixteen::BYTES, t / 2, 16 * (t % 2) + i);
                *o = scale * f32::from(VALUES_5[q] + shift);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], block: &mut [u8]) {
        let fit = fit::in_table(values, 16, &TABLE, &LEVELS, true);
        block.fill(0);
        sixteen::put(&fit, block);
        put_codes(block, sixteen::BYTES, &fit.code);
    }
}

impl Quantised for IQ5_K {
    const SIGNED: bool = true;
    const LARGEST: i32 = 127;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let shifts = sixteen::shifts(s, tile, g, SHIFT_5);
        add_shifts(s, values(s, tile, sixteen::BYTES, g), shifts)
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        two!(half => sixteen::integer(s, tile, 2 * g + half))
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `16 * (high.start + 4 * j)` => `16 * high.start`
// [matmul] `2 * g + half` => `2 * g + 0 * half`
// [formats] `start: start + 32 * (g / 2), shift: 4 * (g % 2)` => `start: start + 32 * (g % 4), shift: 4 * (g / 4)`

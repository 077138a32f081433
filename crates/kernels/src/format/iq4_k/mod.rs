//! `IQ4_K` of ik_llama.cpp: super-blocks of 256 elements in 16 groups of 16, with the table of [`super::iq4_nl`].
//! value = d · scale · (VALUES\[q\] + 4, if the group has the shifted table).
//!
//! Block (144 bytes): the head of [`sixteen`], `qs` 128 bytes as in [`super::iq4_xs`].

use super::iq4_nl::VALUES;
use super::shifted::{SHIFT_4, add_shifts, sixteen};
use super::{BlockFormat, Plane, Quantised, bits, fit, plane};
use crate::simd::Simd;

/// The format `IQ4_K`.
#[derive(Clone, Copy, Default)]
pub struct IQ4_K;

const QS: usize = sixteen::BYTES;

/// [`VALUES`] for the encoders.
pub(super) const TABLE: fit::Table<1, 16> = fit::Table {
    entries: {
        let mut entries = [[0]; 16];
        let mut i = 0;
        while i < 16 {
            entries[i] = [VALUES[i]];
            i += 1;
        }
        entries
    },
    shift: SHIFT_4,
};

/// Integer scales of the formats with 16 groups.
pub(super) const LEVELS: fit::Levels = fit::Levels { lowest: -32, highest: 31, step: 1 };

impl BlockFormat for IQ4_K {
    const BLOCK: usize = 256;
    const GROUP: usize = 16;
    const BYTES: usize = 144;
    const PLANES: &'static [Plane] = &[plane(0, 4, 2), plane(4, 4, 1), plane(8, 8, 1), plane(16, 128, 4)];
    const ENCODE_NMSE: f64 = 4e-3;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        for (t, out) in out.chunks_exact_mut(16).enumerate() {
            let (scale, shifted) = sixteen::get(block, t);
            let shift = if shifted { SHIFT_4 } else { 0 };
            for (i, o) in out.iter_mut().enumerate() {
                let q = bits::nibble(&block[QS + 16 * (t / 2)..], 16 * (t % 2) + i);
                *o = scale * f32::from(VALUES[usize::from(q)] + shift);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], block: &mut [u8]) {
        let fit = fit::in_table(values, 16, &TABLE, &LEVELS, true);
        block.fill(0);
        sixteen::put(&fit, block);
        for (qs, codes) in block[QS..].chunks_exact_mut(16).zip(fit.code.chunks_exact(32)) {
            bits::set_nibbles(qs, |i| codes[i]);
        }
    }
}

impl Quantised for IQ4_K {
    const SIGNED: bool = true;
    const LARGEST: i32 = 127;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let codes = bits::lookup_codes(s, tile, QS + 16 * g, &VALUES);
        add_shifts(s, codes, sixteen::shifts(s, tile, g, SHIFT_4))
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        two!(half => sixteen::integer(s, tile, 2 * g + half))
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `QS + 16 * g, &VALUES` => `QS, &VALUES`
// [matmul] `2 * g + half` => `2 * g + 0 * half`

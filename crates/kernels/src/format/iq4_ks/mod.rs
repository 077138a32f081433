//! `IQ4_KS` of ik_llama.cpp: super-blocks of 256 elements in 8 groups of 32, with the table of [`super::iq4_nl`].
//! value = d · scale · (VALUES\[q\] + 4, if the group has the shifted table).
//!
//! Block (140 bytes): the head of [`odd`], `qs` 128 bytes as in [`super::iq4_xs`]. Files have `d` once for each row, before
//! its blocks: see [`super::rows`]. Blocks of `IQ4_KSS` are unpacked to these.

use super::iq4_k::TABLE;
use super::iq4_nl::VALUES;
use super::shifted::{SHIFT_4, add_shifts, odd};
use super::{BlockFormat, Plane, Quantised, bits, fit, plane};
use crate::simd::Simd;

/// The format `IQ4_KS`.
#[derive(Clone, Copy, Default)]
pub struct IQ4_KS;

const QS: usize = odd::BYTES;

/// Integer scales of the formats with a byte for each scale.
pub(super) const LEVELS: fit::Levels = fit::Levels { lowest: -127, highest: 127, step: 2 };

impl BlockFormat for IQ4_KS {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 140;
    const PLANES: &'static [Plane] = &[plane(0, 4, 4), plane(4, 8, 1), plane(12, 128, 4)];
    const ENCODE_NMSE: f64 = 5.4e-3;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let (scale, shifted) = odd::get(block, g);
            let shift = if shifted { SHIFT_4 } else { 0 };
            for (i, o) in out.iter_mut().enumerate() {
                let q = bits::nibble(&block[QS + 16 * g..], i);
                *o = scale * f32::from(VALUES[usize::from(q)] + shift);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(256)) {
            let fit = fit::in_table(values, 32, &TABLE, &LEVELS, false);
            odd::put(&fit, block);
            for (qs, codes) in block[QS..].chunks_exact_mut(16).zip(fit.code.chunks_exact(32)) {
                bits::set_nibbles(qs, |i| codes[i]);
            }
        }
    }
}

impl Quantised for IQ4_KS {
    const SIGNED: bool = true;
    const LARGEST: i32 = 127;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let codes = bits::lookup_codes(s, tile, QS + 16 * g, &VALUES);
        add_shifts(s, codes, odd::shifts(s, tile, g, SHIFT_4))
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        odd::unit(s, tile)
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        [odd::integer(s, tile, g); 2]
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `QS + 16 * g, &VALUES` => `QS, &VALUES`
// [matmul] `odd::unit(s, tile)` => `s.load_f32_bytes(tile, 64)`

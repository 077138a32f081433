//! `IQ5_KS` of ik_llama.cpp: super-blocks of 256 elements in 8 groups of 32.
//! value = d · scale · (VALUES_5\[q\] + 2, if the group has the shifted table of [`super::shifted`]).
//!
//! Block (172 bytes): the head of [`odd`], `qs` 128 bytes and `qh` 32 bytes as in [`super::iq5_k`]. Files have `d` once for
//! each row, before its blocks: see [`super::rows`].

use super::iq4_ks::LEVELS;
use super::iq5_k::{TABLE, code, put_codes, values};
use super::shifted::{SHIFT_5, VALUES_5, add_shifts, odd};
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ5_KS`.
#[derive(Clone, Copy, Default)]
pub struct IQ5_KS;

impl BlockFormat for IQ5_KS {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 172;
    const PLANES: &'static [Plane] = &[plane(0, 4, 4), plane(4, 8, 1), plane(12, 128, 4), plane(140, 32, 4)];
    const ENCODE_NMSE: f64 = 1.32e-3;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let (scale, shifted) = odd::get(block, g);
            let shift = if shifted { SHIFT_5 } else { 0 };
            for (i, o) in out.iter_mut().enumerate() {
                *o = scale * f32::from(VALUES_5[code(block, odd::BYTES, g, i)] + shift);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(256)) {
            let fit = fit::in_table(values, 32, &TABLE, &LEVELS, false);
            block.fill(0);
            odd::put(&fit, block);
            put_codes(block, odd::BYTES, &fit.code);
        }
    }
}

impl Quantised for IQ5_KS {
    const SIGNED: bool = true;
    const LARGEST: i32 = 127;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        add_shifts(s, values(s, tile, odd::BYTES, g), odd::shifts(s, tile, g, SHIFT_5))
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
// [matmul] `odd::integer(s, tile, g)` => `odd::integer(s, tile, 0)`
// [matmul] `odd::shifts(s, tile, g, SHIFT_5)` => `odd::shifts(s, tile, 0, SHIFT_5)`

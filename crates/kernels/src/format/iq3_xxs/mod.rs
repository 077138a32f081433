//! `IQ3_XXS`: super-blocks of 256 elements in 8 groups of 32. value = d / 4 · (2·scale + 1) · ±VALUES\[digit\], with the
//! digits of four elements from a grid ([`super::grid`]).
//!
//! Block (98 bytes): `d` f16, `qs` 64 bytes: the rank of each point; `signs` 8 little-endian numbers of 32 bits, one of
//! each group: seven sign bits of each eight elements from bit `7·l` on, and the scale in the upper four. The eighth sign
//! makes the number of negative elements even.

use super::grid;
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ3_XXS`.
#[derive(Clone, Copy, Default)]
pub struct IQ3_XXS;

/// The magnitude of each digit.
pub(super) const VALUES: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
const LARGEST: i32 = 62;
const CODES: [i8; 16] = grid::codes(VALUES, LARGEST as i8);
/// The block's unit, in `d`.
const UNIT: f32 = 0.25;

const QS: usize = 2;
const SIGNS: usize = 66;

impl BlockFormat for IQ3_XXS {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 98;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2), plane(2, 64, 4), plane(66, 32, 4)];
    const ENCODE_NMSE: f64 = 3.67e-2;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let unit = grid::unit_at(block, 0, UNIT);
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let word = &block[SIGNS + 4 * g..][..4];
            let signs = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            let scale = unit * (2 * (signs >> 28) + 1) as f32;
            for (l, out) in out.chunks_exact_mut(4).enumerate() {
                let eight = grid::even_signs((signs >> (7 * (l / 2))) as u8 & 127);
                let point = grid::IQ3_XXS[usize::from(block[QS + 8 * g + l])];
                grid::decode(point, eight >> (4 * (l % 2)), &VALUES, scale, out);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(256)) {
            let fit = fit::on_grid::<4>(values, 32, &grid::IQ3_XXS, &VALUES, UNIT, true);
            block[..QS].copy_from_slice(&fit.d.to_le_bytes());
            for (q, rank) in block[QS..SIGNS].iter_mut().zip(fit.rank) {
                *q = rank as u8;
            }
            for (g, word) in block[SIGNS..].chunks_exact_mut(4).enumerate() {
                let signs = (0..4).fold(u32::from(fit.scale[g]) << 28, |signs, l| {
                    signs | u32::from(fit.signs[4 * g + l] & 127) << (7 * l)
                });
                word.copy_from_slice(&signs.to_le_bytes());
            }
        }
    }
}

impl Quantised for IQ3_XXS {
    const LARGEST: i32 = 2 * LARGEST;
    const ZERO: i32 = LARGEST;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let signs = grid::four_even_signs(s, s.load_i32(tile, 16 * (SIGNS + 4 * g)));
        grid::join::<S>(four!(l => {
            let ranks = s.load_codes(tile, 16 * (QS + 8 * g + 4 * (l / 2)));
            let first = s.gather(&grid::IQ3_XXS, s.byte(ranks, 2 * (l as u32 % 2)));
            let second = s.gather(&grid::IQ3_XXS, s.byte(ranks, 2 * (l as u32 % 2) + 1));
            let points = s.or_i32(first, s.shl_i32(second, 4));
            grid::eight_codes(s, &CODES, grid::with_signs(s, points, s.byte(signs, l as u32)))
        }))
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.mul(s.load_f16(tile, 0), s.splat(UNIT))
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        [grid::odd_scale(s, s.load_i32(tile, 16 * (SIGNS + 4 * g)), 28); 2]
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.shl_i32(second, 4)` => `s.shl_i32(first, 4)`
// [matmul] `s.splat(UNIT)` => `s.splat(0.5 * UNIT)`

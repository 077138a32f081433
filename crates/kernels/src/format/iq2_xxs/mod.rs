//! `IQ2_XXS`: super-blocks of 256 elements in 8 groups of 32. value = d / 8 · (2·scale + 1) · ±VALUES\[digit\], with the
//! digits of eight elements from a grid ([`super::grid`]).
//!
//! Block (66 bytes): `d` f16, then 8 bytes of each group: the ranks of four points, and a little-endian number with
//! seven sign bits of each point from bit `7·l` on and the scale in the upper four. The eighth sign makes the number of
//! negative elements even.

use super::grid;
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ2_XXS`.
#[derive(Clone, Copy, Default)]
pub struct IQ2_XXS;

/// The magnitude of each digit.
pub(super) const VALUES: [i8; 3] = [8, 25, 43];
/// [`Quantised::ZERO`] of all formats with these values.
pub(super) const ZERO: i32 = 43;
/// The code of each digit with its sign.
pub(super) const CODES: [i8; 16] = grid::codes(VALUES, ZERO as i8);
/// The block's unit, in `d`.
pub(super) const UNIT: f32 = 0.125;

const GROUPS: usize = 2;

fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

impl BlockFormat for IQ2_XXS {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 66;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2), plane(2, 64, 4)];
    const ENCODE_NMSE: f64 = 1.21e-1;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let unit = grid::unit_at(block, 0, UNIT);
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let group = &block[GROUPS + 8 * g..][..8];
            let signs = word(group, 4);
            let scale = unit * (2 * (signs >> 28) + 1) as f32;
            for (l, out) in out.chunks_exact_mut(8).enumerate() {
                let point = grid::IQ2_XXS[usize::from(group[l])];
                grid::decode(point, grid::even_signs((signs >> (7 * l)) as u8 & 127), &VALUES, scale, out);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(256)) {
            let fit = fit::on_grid::<8>(values, 32, &grid::IQ2_XXS, &VALUES, UNIT, true);
            block[..GROUPS].copy_from_slice(&fit.d.to_le_bytes());
            for (g, group) in block[GROUPS..].chunks_exact_mut(8).enumerate() {
                let mut signs = u32::from(fit.scale[g]) << 28;
                for l in 0..4 {
                    group[l] = fit.rank[4 * g + l] as u8;
                    signs |= u32::from(fit.signs[4 * g + l] & 127) << (7 * l);
                }
                group[4..].copy_from_slice(&signs.to_le_bytes());
            }
        }
    }
}

impl Quantised for IQ2_XXS {
    const LARGEST: i32 = 2 * ZERO;
    const ZERO: i32 = ZERO;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let ranks = s.load_codes(tile, 16 * (GROUPS + 8 * g));
        let signs = grid::four_even_signs(s, s.load_i32(tile, 16 * (GROUPS + 8 * g + 4)));
        grid::join::<S>(four!(l => {
            let points = s.gather(&grid::IQ2_XXS, s.byte(ranks, l as u32));
            grid::eight_codes(s, &CODES, grid::with_signs(s, points, s.byte(signs, l as u32)))
        }))
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.mul(s.load_f16(tile, 0), s.splat(UNIT))
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        [grid::odd_scale(s, s.load_i32(tile, 16 * (GROUPS + 8 * g + 4)), 28); 2]
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.byte(ranks, l as u32)` => `s.byte(ranks, 0)`
// [matmul] `s.load_i32(tile, 16 * (GROUPS + 8 * g + 4)), 28)` => `s.load_i32(tile, 16 * (GROUPS + 4)), 28)`

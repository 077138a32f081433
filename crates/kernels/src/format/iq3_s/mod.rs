//! `IQ3_S`: super-blocks of 256 elements in 8 groups of 32. value = d · (2·scale + 1) · ±VALUES\[digit\], with the digits
//! of four elements from a grid ([`super::grid`]).
//!
//! Block (110 bytes): `d` f16, `qs` 64 bytes: the lower eight bits of each point's rank, `qh` 8 bytes: bit `l` of byte `g`
//! is the ninth of point `8·g + l`, `signs` 32 bytes: a bit of each element, `scales` 4 bytes: nibble `g` is the scale of
//! group `g`.

use super::grid;
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ3_S`.
#[derive(Clone, Copy, Default)]
pub struct IQ3_S;

/// The magnitude of each digit.
pub(super) const VALUES: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];
const LARGEST: i32 = 15;
const CODES: [i8; 16] = grid::codes(VALUES, LARGEST as i8);

const QS: usize = 2;
const QH: usize = 66;
const SIGNS: usize = 74;
const SCALES: usize = 106;

impl BlockFormat for IQ3_S {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 110;
    const PLANES: &'static [Plane] =
        &[plane(0, 2, 2), plane(2, 64, 4), plane(66, 8, 1), plane(74, 32, 4), plane(106, 4, 1)];
    const ENCODE_NMSE: f64 = 2.02e-2;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let unit = grid::unit_at(block, 0, 1.0);
        for (k, out) in out.chunks_exact_mut(4).enumerate() {
            let rank = usize::from(block[QS + k]) | usize::from(block[QH + k / 8] >> (k % 8) & 1) << 8;
            let signs = block[SIGNS + k / 2] >> (4 * (k % 2));
            grid::decode(grid::IQ3_S[rank], signs, &VALUES, unit * grid::odd(&block[SCALES..], k / 8), out);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(256)) {
            let fit = fit::on_grid::<4>(values, 32, &grid::IQ3_S, &VALUES, 1.0, false);
            block.fill(0);
            block[..QS].copy_from_slice(&fit.d.to_le_bytes());
            for k in 0..64 {
                block[QS + k] = fit.rank[k] as u8;
                block[QH + k / 8] |= ((fit.rank[k] >> 8) as u8) << (k % 8);
            }
            block[SIGNS..SCALES].copy_from_slice(&fit.signs);
            fit.put_scales(&mut block[SCALES..]);
        }
    }
}

impl Quantised for IQ3_S {
    const LARGEST: i32 = 2 * LARGEST;
    const ZERO: i32 = LARGEST;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let signs = s.load_codes(tile, 16 * (SIGNS + 4 * g));
        let high = s.shl_i32(s.load_u8(tile, 16 * (QH + g)), 8);
        grid::join::<S>(four!(l => {
            let low = s.load_codes(tile, 16 * (QS + 8 * g + 4 * (l / 2)));
            let first = ninth_bit(s, s.byte(low, 2 * (l as u32 % 2)), high, 2 * l as u32);
            let second = ninth_bit(s, s.byte(low, 2 * (l as u32 % 2) + 1), high, 2 * l as u32 + 1);
            let points = s.or_i32(s.gather(&grid::IQ3_S, first), s.shl_i32(s.gather(&grid::IQ3_S, second), 4));
            grid::eight_codes(s, &CODES, grid::with_signs(s, points, s.byte(signs, l as u32)))
        }))
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        [grid::odd_scale(s, s.load_u8(tile, 16 * (SCALES + g / 2)), 4 * (g as u32 % 2)); 2]
    }
}

/// The rank of a point from its lower bits and bit `8 + n` of `high`.
#[inline(always)]
fn ninth_bit<S: Simd>(s: S, low: S::I32, high: S::I32, n: u32) -> S::I32 {
    s.or_i32(low, s.and_i32(s.shr_i32(high, n), s.splat_i32(0x100)))
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.shr_i32(high, n)` => `s.shr_i32(high, n / 2)`
// [matmul] `4 * (g as u32 % 2)` => `0`

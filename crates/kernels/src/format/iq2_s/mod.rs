//! `IQ2_S`: super-blocks of 256 elements in 16 groups of 16. value = d / 8 · (2·scale + 1) · ±VALUES\[digit\], with the
//! digits of eight elements from a grid ([`super::grid`]), and the values of [`super::iq2_xxs`].
//!
//! Block (82 bytes): `d` f16, `qs` 32 bytes: the lower eight bits of each point's rank, `signs` 32 bytes: a bit of each
//! element, `qh` 8 bytes: two bits of each point, its rank's upper ones, `scales` 8 bytes: nibble `t` is the scale of
//! group `t`.

use super::grid;
use super::iq2_xxs::{CODES, UNIT, VALUES, ZERO};
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ2_S`.
#[derive(Clone, Copy, Default)]
pub struct IQ2_S;

const QS: usize = 2;
const SIGNS: usize = 34;
const QH: usize = 66;
const SCALES: usize = 74;

impl BlockFormat for IQ2_S {
    const BLOCK: usize = 256;
    const GROUP: usize = 16;
    const BYTES: usize = 82;
    const PLANES: &'static [Plane] =
        &[plane(0, 2, 2), plane(2, 32, 4), plane(34, 32, 4), plane(66, 8, 1), plane(74, 8, 1)];
    const ENCODE_NMSE: f64 = 6.7e-2;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let unit = grid::unit_at(block, 0, UNIT);
        for (k, out) in out.chunks_exact_mut(8).enumerate() {
            let high = block[QH + k / 4] >> (2 * (k % 4)) & 3;
            let scale = unit * grid::odd(&block[SCALES..], k / 2);
            let point = grid::IQ2_S[usize::from(block[QS + k]) | usize::from(high) << 8];
            grid::decode(point, block[SIGNS + k], &VALUES, scale, out);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], block: &mut [u8]) {
        let fit = fit::on_grid::<8>(values, 16, &grid::IQ2_S, &VALUES, UNIT, false);
        block.fill(0);
        block[..QS].copy_from_slice(&fit.d.to_le_bytes());
        for k in 0..32 {
            block[QS + k] = fit.rank[k] as u8;
            block[SIGNS + k] = fit.signs[k];
            block[QH + k / 4] |= ((fit.rank[k] >> 8) as u8) << (2 * (k % 4));
        }
        fit.put_scales(&mut block[SCALES..]);
    }
}

impl Quantised for IQ2_S {
    const LARGEST: i32 = 2 * ZERO;
    const ZERO: i32 = ZERO;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let low = s.load_codes(tile, 16 * (QS + 4 * g));
        let signs = s.load_codes(tile, 16 * (SIGNS + 4 * g));
        let high = s.shl_i32(s.load_u8(tile, 16 * (QH + g)), 8);
        grid::join::<S>(four!(l => {
            let high = s.and_i32(s.shr_i32(high, 2 * l as u32), s.splat_i32(0x300));
            let points = s.gather(&grid::IQ2_S, s.or_i32(s.byte(low, l as u32), high));
            grid::eight_codes(s, &CODES, grid::with_signs(s, points, s.byte(signs, l as u32)))
        }))
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.mul(s.load_f16(tile, 0), s.splat(UNIT))
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        let scales = s.load_u8(tile, 16 * (SCALES + g));
        two!(half => grid::odd_scale(s, scales, 4 * half as u32))
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.and_i32(s.shr_i32(high, 2 * l as u32), s.splat_i32(0x300))` => `s.and_i32(high, s.splat_i32(0x300))`
// [matmul] `16 * (SIGNS + 4 * g)` => `16 * SIGNS`

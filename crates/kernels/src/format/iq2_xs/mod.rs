//! `IQ2_XS`: super-blocks of 256 elements in 16 groups of 16. value = d / 8 · (2·scale + 1) · ±VALUES\[digit\], with the
//! digits of eight elements from a grid ([`super::grid`]), and the values of [`super::iq2_xxs`].
//!
//! Block (74 bytes): `d` f16, `qs` 32 little-endian numbers of 16 bits: the rank of a point in the lower nine, and seven
//! sign bits as in `IQ2_XXS`; `scales` 8 bytes: nibble `t` is the scale of group `t`.

use super::grid;
use super::iq2_xxs::{CODES, UNIT, VALUES, ZERO};
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ2_XS`.
#[derive(Clone, Copy, Default)]
pub struct IQ2_XS;

const QS: usize = 2;
const SCALES: usize = 66;

impl BlockFormat for IQ2_XS {
    const BLOCK: usize = 256;
    const GROUP: usize = 16;
    const BYTES: usize = 74;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2), plane(2, 64, 2), plane(66, 8, 1)];
    const ENCODE_NMSE: f64 = 9.6e-2;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let unit = grid::unit_at(block, 0, UNIT);
        for (k, out) in out.chunks_exact_mut(8).enumerate() {
            let q = u16::from_le_bytes([block[QS + 2 * k], block[QS + 2 * k + 1]]);
            let scale = unit * grid::odd(&block[SCALES..], k / 2);
            let point = grid::IQ2_XS[usize::from(q & 511)];
            grid::decode(point, grid::even_signs((q >> 9) as u8), &VALUES, scale, out);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], block: &mut [u8]) {
        let fit = fit::on_grid::<8>(values, 16, &grid::IQ2_XS, &VALUES, UNIT, true);
        block[..QS].copy_from_slice(&fit.d.to_le_bytes());
        for (k, q) in block[QS..SCALES].chunks_exact_mut(2).enumerate() {
            q.copy_from_slice(&(fit.rank[k] | u16::from(fit.signs[k] & 127) << 9).to_le_bytes());
        }
        fit.put_scales(&mut block[SCALES..]);
    }
}

impl Quantised for IQ2_XS {
    const LARGEST: i32 = 2 * ZERO;
    const ZERO: i32 = ZERO;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        grid::join::<S>(four!(l => {
            let q = s.load_u16(tile, 16 * (QS + 2 * (4 * g + l)));
            let points = s.gather(&grid::IQ2_XS, s.and_i32(q, s.splat_i32(511)));
            let signs = grid::even_signs_of(s, s.as_codes(s.shr_i32(q, 9)));
            grid::eight_codes(s, &CODES, grid::with_signs(s, points, s.byte(signs, 0)))
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
// [matmul] `s.splat_i32(511)` => `s.splat_i32(255)`
// [matmul] `4 * half as u32` => `0 * half as u32`

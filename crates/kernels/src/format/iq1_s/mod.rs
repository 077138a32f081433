//! `IQ1_S`: super-blocks of 256 elements in 8 groups of 32. value = d · (2·scale + 1) · (digit − 1 ± 1/8), with the digits
//! of eight elements from a grid ([`super::grid`]).
//!
//! Block (50 bytes): `d` f16, `qs` 32 bytes: the lower eight bits of each point's rank, `qh` 8 little-endian numbers of 16
//! bits, one of each group: bits `3·l` to `3·l + 2` are the upper ones of point `l`'s rank, bits 12 to 14 the scale; if
//! bit 15 is set, the eighth is subtracted.

use super::grid;
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ1_S`.
#[derive(Clone, Copy, Default)]
pub struct IQ1_S;

/// Eight times the value of a digit that an eighth is added to; the negative of a digit is that of the one opposite.
pub(super) const VALUES: [i8; 3] = [-7, 1, 9];
/// [`Quantised::ZERO`].
pub(super) const ZERO: i32 = 9;
/// The code of each digit: bit 3 subtracts the eighth.
pub(super) const CODES: [i8; 16] = {
    let mut codes = [ZERO as i8; 16];
    let mut i = 0;
    while i < 3 {
        codes[i] = ZERO as i8 + VALUES[i];
        codes[8 + i] = ZERO as i8 + VALUES[i] - 2;
        i += 1;
    }
    codes
};
/// The block's unit, in `d`.
pub(super) const UNIT: f32 = 0.125;

const QS: usize = 2;
const QH: usize = 34;

/// Decodes the weights of one point.
pub(super) fn decode_point(rank: usize, minus: bool, scale: f32, out: &mut [f32]) {
    for (i, o) in out.iter_mut().enumerate() {
        let value = VALUES[grid::digit(grid::IQ1[rank], i)] - if minus { 2 } else { 0 };
        *o = scale * f32::from(value);
    }
}

impl BlockFormat for IQ1_S {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 50;
    const PLANES: &'static [Plane] = &[plane(0, 2, 2), plane(2, 32, 4), plane(34, 16, 2)];
    const ENCODE_NMSE: f64 = 2.11e-1;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let unit = grid::unit_at(block, 0, UNIT);
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let high = u16::from_le_bytes([block[QH + 2 * g], block[QH + 2 * g + 1]]);
            let scale = unit * f32::from(2 * (high >> 12 & 7) + 1);
            for (l, out) in out.chunks_exact_mut(8).enumerate() {
                let rank = usize::from(block[QS + 4 * g + l]) | usize::from(high >> (3 * l) & 7) << 8;
                decode_point(rank, high >> 15 == 1, scale, out);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(256)) {
            let fit = fit::on_shifted_grid(values, 32, 32);
            block[..QS].copy_from_slice(&fit.d.to_le_bytes());
            for (q, rank) in block[QS..QH].iter_mut().zip(fit.rank) {
                *q = rank as u8;
            }
            for (g, word) in block[QH..].chunks_exact_mut(2).enumerate() {
                let high = u16::from(fit.scale[g]) << 12 | u16::from(fit.signs[4 * g]) << 15;
                let high = (0..4).fold(high, |high, l| high | fit.rank[4 * g + l] >> 8 << (3 * l));
                word.copy_from_slice(&high.to_le_bytes());
            }
        }
    }
}

impl Quantised for IQ1_S {
    const LARGEST: i32 = 2 * ZERO;
    const ZERO: i32 = ZERO;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let low = s.load_codes(tile, 16 * (QS + 4 * g));
        let high = s.load_u16(tile, 16 * (QH + 2 * g));
        let minus = s.select_gt(high, s.splat_i32(0x7fff), s.splat_i32(grid::EVERY_SIGN), s.splat_i32(0));
        grid::join::<S>(four!(l => {
            let high = s.and_i32(s.shl_i32(s.shr_i32(high, 3 * l as u32), 8), s.splat_i32(0x700));
            let points = s.gather(&grid::IQ1, s.or_i32(s.byte(low, l as u32), high));
            grid::eight_codes(s, &CODES, s.or_i32(points, minus))
        }))
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.mul(s.load_f16(tile, 0), s.splat(UNIT))
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        let high = s.and_i32(s.load_u16(tile, 16 * (QH + 2 * g)), s.splat_i32(0x7000));
        [grid::odd_scale(s, high, 12); 2]
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.shl_i32(s.shr_i32(high, 3 * l as u32), 8)` => `s.shl_i32(high, 8)`
// [matmul] `s.splat_i32(0x7000)` => `s.splat_i32(0xf000)`

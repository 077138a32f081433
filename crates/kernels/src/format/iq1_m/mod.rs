//! `IQ1_M`: super-blocks of 256 elements in 16 groups of 16. value = d · (2·scale + 1) · (digit − 1 ± 1/8), with the digits
//! of eight elements from the grid ([`super::grid`]) of [`super::iq1_s`].
//!
//! Block (56 bytes): `qs` 32 bytes: the lower eight bits of each point's rank, `qh` 16 bytes: a nibble of each point, the
//! upper three bits of its rank and, as bit 3, whether the eighth is subtracted; `scales` 4 little-endian numbers of 16
//! bits: bits `3·(t % 4)` on of number `t / 4` are the scale of group `t`, and their upper nibbles are `d`, an f16, the
//! lowest nibble first.

use half::f16;

use super::grid;
use super::iq1_s::{CODES, UNIT, ZERO, decode_point};
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `IQ1_M`.
#[derive(Clone, Copy, Default)]
pub struct IQ1_M;

const QH: usize = 32;
const SCALES: usize = 48;

impl BlockFormat for IQ1_M {
    const BLOCK: usize = 256;
    const GROUP: usize = 16;
    const BYTES: usize = 56;
    const PLANES: &'static [Plane] = &[plane(0, 32, 4), plane(32, 16, 2), plane(48, 8, 2)];
    const ENCODE_NMSE: f64 = 1.85e-1;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let scales: [u16; 4] =
            std::array::from_fn(|i| u16::from_le_bytes([block[SCALES + 2 * i], block[SCALES + 2 * i + 1]]));
        let d = scales.iter().enumerate().fold(0, |d, (i, word)| d | word >> 12 << (4 * i));
        let unit = UNIT * f16::from_bits(d).to_f32();
        for (k, out) in out.chunks_exact_mut(8).enumerate() {
            let high = block[QH + k / 2] >> (4 * (k % 2)) & 15;
            let rank = usize::from(block[k]) | usize::from(high & 7) << 8;
            let scale = unit * f32::from(2 * (scales[k / 8] >> (3 * (k / 2 % 4)) & 7) + 1);
            decode_point(rank, high & 8 == 8, scale, out);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], block: &mut [u8]) {
        let fit = fit::on_shifted_grid(values, 16, 8);
        block.fill(0);
        for k in 0..32 {
            block[k] = fit.rank[k] as u8;
            block[QH + k / 2] |= ((fit.rank[k] >> 8) as u8 | fit.signs[k] << 3) << (4 * (k % 2));
        }
        for (i, word) in block[SCALES..].chunks_exact_mut(2).enumerate() {
            let d = (fit.d.to_bits() >> (4 * i) & 15) << 12;
            let scales = (0..4).fold(d, |word, t| word | u16::from(fit.scale[4 * i + t]) << (3 * t));
            word.copy_from_slice(&scales.to_le_bytes());
        }
    }
}

impl Quantised for IQ1_M {
    const LARGEST: i32 = 2 * ZERO;
    const ZERO: i32 = ZERO;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let low = s.load_codes(tile, 16 * 4 * g);
        let nibbles = s.load_u16(tile, 16 * (QH + 2 * g));
        grid::join::<S>(four!(l => {
            let nibble = s.shr_i32(nibbles, 4 * l as u32);
            let high = s.and_i32(s.shl_i32(nibble, 8), s.splat_i32(0x700));
            let points = s.gather(&grid::IQ1, s.or_i32(s.byte(low, l as u32), high));
            let bit = s.and_i32(nibble, s.splat_i32(8));
            let minus = s.select_gt(bit, s.splat_i32(0), s.splat_i32(grid::EVERY_SIGN), s.splat_i32(0));
            grid::eight_codes(s, &CODES, s.or_i32(points, minus))
        }))
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        let [a, b, c, d] = four!(i => {
            let nibble = s.and_i32(s.load_u16(tile, 16 * (SCALES + 2 * i)), s.splat_i32(0xf000));
            s.shr_i32(nibble, 12 - 4 * i as u32)
        });
        s.mul(half_of(s, s.or_i32(s.or_i32(a, b), s.or_i32(c, d))), s.splat(UNIT))
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        let scales = s.load_u16(tile, 16 * (SCALES + 2 * (g / 2)));
        two!(half => {
            let shift = 3 * (2 * (g % 2) + half) as u32;
            let scale = s.and_i32(s.shr_i32(scales, shift), s.splat_i32(7));
            s.or_i32(s.shl_i32(scale, 1), s.splat_i32(1))
        })
    }
}

/// The f16 of each lane's lower 16 bits; the upper ones are zero.
#[inline(always)]
fn half_of<S: Simd>(s: S, bits: S::I32) -> S::F32 {
    let magnitude = s.shl_i32(s.and_i32(bits, s.splat_i32(0x7fff)), 13);
    // The exponent gets the bias of f32; infinity and NaN get the largest exponent back.
    let finite = s.mul(s.as_f32(magnitude), s.splat(f32::from_bits(0x7780_0000)));
    let infinite = s.as_f32(s.or_i32(magnitude, s.splat_i32(0x7f80_0000)));
    let number = s.select_lt(finite, s.splat(65536.0), finite, infinite);
    let one = s.select_gt(
        bits,
        s.splat_i32(0x7fff),
        s.splat_i32((-1f32).to_bits() as i32),
        s.splat_i32(1f32.to_bits() as i32),
    );
    s.mul(number, s.as_f32(one))
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `12 - 4 * i as u32` => `12 - 4 * (i as u32 / 2)`
// [matmul] `3 * (2 * (g % 2) + half) as u32` => `3 * (2 * (g % 2)) as u32`
// [matmul] `s.and_i32(nibble, s.splat_i32(8))` => `s.and_i32(nibble, s.splat_i32(4))`

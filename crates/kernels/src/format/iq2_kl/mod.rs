//! `IQ2_KL` of ik_llama.cpp: super-blocks of 256 elements in 8 groups of 32. A code of 5 bits stands for two neighbours.
//! value = d · (scale − 32) · one of PAIRS\[q\].
//!
//! Block (88 bytes): `d` f16, `scales_h` u16 (bits `2·g`: high 2 bits of group `g`'s scale), `scales_l` 4 bytes (nibble `g / 4`
//! of byte `g % 4`: its low 4 bits), `qs` 64 bytes, `qh` 16 bytes. Elements `32·g + 2·j` and `32·g + 2·j + 1` have the low bits
//! of their code in nibble `g % 2` of `qs` byte `16·(g / 2) + j` and its high bit at bit `g` of `qh` byte `j`. Files have `d`
//! once for each row, before its blocks: see [`super::rows`].

use super::shifted::{halves, look_up_32};
use super::{BlockFormat, Plane, Quantised, bits, fit, plane};
use crate::simd::Simd;

/// The format `IQ2_KL`.
#[derive(Clone, Copy, Default)]
pub struct IQ2_KL;

/// The two values of each code.
#[rustfmt::skip]
pub(super) const PAIRS: [[i8; 2]; 32] = [
    [-63, -23], [-63, 13], [-40, -63], [-40, -10], [-40, 13], [-40, 47], [-23, -40], [-23, -23],
    [-23, 1], [-23, 13], [-23, 28], [-10, -63], [-10, 1], [-10, 13], [-10, 47], [1, -23],
    [1, -10], [1, 1], [1, 13], [1, 28], [13, -40], [13, -23], [13, -10], [13, 1],
    [13, 13], [28, -63], [28, -23], [28, 1], [28, 28], [28, 47], [47, -23], [47, 13],
];

/// The first and the second values of the codes, for [`look_up_32`].
const VALUES: [[[i8; 16]; 2]; 2] = {
    let mut values = [[0; 32]; 2];
    let mut i = 0;
    while i < 32 {
        [values[0][i], values[1][i]] = PAIRS[i];
        i += 1;
    }
    [halves(&values[0]), halves(&values[1])]
};

const SCALES_H: usize = 2;
const SCALES_L: usize = 4;
const QS: usize = 8;
const QH: usize = 72;
const TABLE: fit::Table<2, 32> = fit::Table { entries: PAIRS, shift: 0 };
const LEVELS: fit::Levels = fit::Levels { lowest: -32, highest: 31, step: 1 };

impl BlockFormat for IQ2_KL {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 88;
    const PLANES: &'static [Plane] = &[plane(0, 4, 2), plane(4, 4, 1), plane(8, 64, 4), plane(72, 16, 4)];
    const ENCODE_NMSE: f64 = 5.3e-2;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, 0);
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            let low = block[SCALES_L + g % 4] >> (4 * (g / 4)) & 15;
            let high = block[SCALES_H + g / 4] >> (2 * (g % 4)) & 3;
            let scale = d * (f32::from(low | high << 4) - 32.0);
            for (j, pair) in out.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let q = block[QS + 16 * (g / 2) + j] >> (4 * (g % 2)) & 15 | (block[QH + j] >> g & 1) << 4;
                *pair = PAIRS[usize::from(q)].map(|value| scale * f32::from(value));
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(256)) {
            let fit = fit::in_table(values, 32, &TABLE, &LEVELS, true);
            block.fill(0);
            fit::put_f16(block, 0, fit.d);
            for g in 0..8 {
                let six = (fit.scale[g] + 32) as u8;
                block[SCALES_L + g % 4] |= (six & 15) << (4 * (g / 4));
                block[SCALES_H + g / 4] |= six >> 4 << (2 * (g % 4));
                for (j, code) in fit.code[16 * g..16 * (g + 1)].iter().enumerate() {
                    block[QS + 16 * (g / 2) + j] |= (code & 15) << (4 * (g % 2));
                    block[QH + j] |= code >> 4 << g;
                }
            }
        }
    }
}

/// The eight values of codes `4·j .. 4·j + 4` of a group, looked up as bytes: a gather of words takes AVX2 several times as long.
#[inline(always)]
fn four<S: Simd>(s: S, tile: &[u8], g: usize, j: usize) -> [S::Codes; 2] {
    let low = s.shr_and(s.load_codes(tile, 16 * (QS + 16 * (g / 2) + 4 * j)), 4 * (g as u32 % 2), 15);
    let high = s.load_codes(tile, 16 * (QH + 4 * j));
    let [first, second] = two!(i => s.as_i32(look_up_32(s, &VALUES[i], low, high, g)));
    // Both values of the first and third code, and of the second and fourth.
    let even = s.splat_i32(0x00ff_00ff);
    let odd = s.splat_i32(!0x00ff_00ff);
    let one_three = s.or_i32(s.and_i32(first, even), s.shl_i32(s.and_i32(second, even), 8));
    let two_four = s.or_i32(s.and_i32(s.shr_i32(first, 8), even), s.and_i32(second, odd));
    let below = s.or_i32(s.and_i32(one_three, s.splat_i32(0xffff)), s.shl_i32(two_four, 16));
    let above = s.or_i32(s.shr_i32(one_three, 16), s.and_i32(two_four, s.splat_i32(!0xffff)));
    [s.as_codes(below), s.as_codes(above)]
}

impl Quantised for IQ2_KL {
    const SIGNED: bool = true;
    const LARGEST: i32 = 63;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        let [a, b, c, d] = [four(s, tile, g, 0), four(s, tile, g, 1), four(s, tile, g, 2), four(s, tile, g, 3)];
        [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]]
    }

    #[inline(always)]
    fn integers<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::I32; 2] {
        let low = s.shr_i32(s.load_u8(tile, 16 * (SCALES_L + g % 4)), 4 * (g as u32 / 4));
        let high = s.shr_i32(s.load_u16(tile, 16 * SCALES_H), 2 * g as u32);
        let (low, high) = (s.and_i32(low, s.splat_i32(15)), s.and_i32(high, s.splat_i32(3)));
        [s.add_i32(s.or_i32(low, s.shl_i32(high, 4)), s.splat_i32(-32)); 2]
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `s.shl_i32(two_four, 16)` => `s.shl_i32(one_three, 16)`
// [matmul] `look_up_32(s, &VALUES[i], low, high, g)` => `look_up_32(s, &VALUES[0], low, high, g)`
// [matmul] `low, high, g)` => `low, high, 0)`
// [matmul] `2 * g as u32` => `g as u32`

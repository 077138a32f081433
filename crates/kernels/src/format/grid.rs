//! The grids of the formats IQ1, IQ2 and IQ3: sets of points, of which a block has the ranks.
//!
//! A point is 4 or 8 digits, one for each weight. Points are in ascending order of Σ digit_j · base^j, so a grid is a
//! bit for each point of its lattice: `grids.bin` contains those of all grids, written by `scripts/golden/grids.py` from
//! PyPI's gguf. A digit has at most three bits. With the sign of its weight as bit 3 it is a nibble, which the format's
//! table of 16 codes replaces.
//!
//! # Grids are tables of nibbles
//!
//! A block of IQ1, IQ2 or IQ3 contains ranks of points in a grid. A point is a word with a digit of three bits for each
//! weight, and bit 3 of each nibble adds the sign; one lookup in 16 entries then gives the codes. So a grid costs one
//! gather for eight weights, and signs cost no arithmetic on codes. The points are one bitmap of 2,822 bytes
//! (`format/grids.bin`); the compiler expands it for CPUs, and `format/grid.rs` writes it as tables into the sources of
//! GPUs. *`Simd::gather` masks the index, so a damaged block cannot read outside the table.*

use std::sync::LazyLock;

use super::bits;
use crate::simd::Simd;

/// The bitmaps, one after another.
const BITMAPS: &[u8; 2822] = include_bytes!("grids.bin");

/// The points of a lattice that a grid may consist of.
struct Lattice {
    /// First byte of the grid's bitmap.
    start: usize,
    /// Numbers that a digit can be.
    base: usize,
    /// Digits of a point.
    digits: u32,
    /// The sum of a point's digits is even; other points have no bit.
    even: bool,
}

impl Lattice {
    /// The points whose bits are set, each as a word: digit `i` is at bit `8·(i % 4) + 4·(i / 4)`.
    const fn points<const N: usize>(self) -> [u32; N] {
        let mut points = [0; N];
        let mut rank = 0;
        let mut bit = 8 * self.start;
        let mut code = 0;
        while code < self.base.pow(self.digits) {
            let mut rest = code;
            let mut sum = 0;
            let mut word = 0;
            let mut i = 0;
            while i < self.digits {
                let digit = rest % self.base;
                word |= (digit as u32) << (8 * (i % 4) + 4 * (i / 4));
                (rest, sum, i) = (rest / self.base, sum + digit, i + 1);
            }
            if !self.even || sum.is_multiple_of(2) {
                if BITMAPS[bit / 8] >> (bit % 8) & 1 == 1 {
                    points[rank] = word;
                    rank += 1;
                }
                bit += 1;
            }
            code += 1;
        }
        assert!(rank == N, "a bit for each point");
        points
    }
}

const fn ternary(start: usize, even: bool) -> Lattice {
    Lattice { start, base: 3, digits: 8, even }
}

const fn octal(start: usize, even: bool) -> Lattice {
    Lattice { start, base: 8, digits: 4, even }
}

/// The points of `IQ2_XXS`.
pub(super) static IQ2_XXS: [u32; 256] = ternary(0, true).points();
/// The points of `IQ2_XS`.
pub(super) static IQ2_XS: [u32; 512] = ternary(411, true).points();
/// The points of `IQ2_S`.
pub(super) static IQ2_S: [u32; 1024] = ternary(822, true).points();
/// The points of `IQ1_S` and `IQ1_M`.
pub(super) static IQ1: [u32; 2048] = ternary(1233, false).points();
/// The points of `IQ3_XXS`.
pub(super) static IQ3_XXS: [u32; 256] = octal(2054, true).points();
/// The points of `IQ3_S`.
pub(super) static IQ3_S: [u32; 512] = octal(2310, false).points();

/// What replaces a nibble: `values` plus `zero` for digits without a sign, and `zero` less `values` for those with one.
pub(super) const fn codes<const N: usize>(values: [i8; N], zero: i8) -> [i8; 16] {
    let mut codes = [zero; 16];
    let mut i = 0;
    while i < N {
        codes[i] = zero + values[i];
        codes[8 + i] = zero - values[i];
        i += 1;
    }
    codes
}

/// Digit `i` of a point.
pub(super) fn digit(point: u32, i: usize) -> usize {
    (point >> (8 * (i % 4) + 4 * (i / 4)) & 7) as usize
}

/// Decodes the weights of one point: scale · value, with signs from the bits of `signs`.
pub(super) fn decode(point: u32, signs: u8, values: &[i8], scale: f32, out: &mut [f32]) {
    for (i, o) in out.iter_mut().enumerate() {
        let value = f32::from(values[digit(point, i)]);
        *o = scale * if signs >> i & 1 == 1 { -value } else { value };
    }
}

/// Seven sign bits, and an eighth that makes the number of ones even.
pub(super) fn even_signs(seven: u8) -> u8 {
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Words of nibbles of eight weights, `bits` in bit 3 of each: bit `i` of a byte belongs to weight `i`.
#[inline(always)]
pub(super) fn with_signs<S: Simd>(s: S, points: S::I32, bits: S::I32) -> S::I32 {
    // Four copies, 7 apart, put bit i at bit 8·i and bit 4 + i at bit 8·i + 4. Where copies meet, no bit is wanted.
    let copies = s.or_i32(bits, s.shl_i32(bits, 7));
    let copies = s.or_i32(copies, s.shl_i32(copies, 14));
    s.or_i32(points, s.and_i32(s.shl_i32(copies, 3), s.splat_i32(EVERY_SIGN)))
}

/// Bit 3 of each nibble.
pub(super) const EVERY_SIGN: i32 = 0x8888_8888_u32 as i32;

/// The codes of eight weights: entries of `table` for the nibbles of a word, in ascending order.
#[inline(always)]
pub(super) fn eight_codes<S: Simd>(s: S, table: &[i8; 16], nibbles: S::I32) -> [S::Codes; 2] {
    let nibbles = s.as_codes(nibbles);
    [s.lookup(table, s.shr_and(nibbles, 0, 15)), s.lookup(table, s.shr_and(nibbles, 4, 15))]
}

/// Codes of 32 weights from those of each eight.
#[inline(always)]
pub(super) fn join<S: Simd>([a, b, c, d]: [[S::Codes; 2]; 4]) -> [S::Codes; 8] {
    [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]]
}

/// [`even_signs`] of each byte.
#[inline(always)]
pub(super) fn even_signs_of<S: Simd>(s: S, sevens: S::Codes) -> S::Codes {
    // Whether the number of ones is odd, as bit 3 and as bit 7.
    const ODD: [i8; 16] = [0, 8, 8, 0, 8, 0, 0, 8, 8, 0, 0, 8, 0, 8, 8, 0];
    const ODD_HIGH: [i8; 16] = [0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0];
    let low = s.lookup(&ODD, s.shr_and(sevens, 0, 15));
    s.or(sevens, s.lookup(&ODD_HIGH, s.or(low, s.shr_and(sevens, 4, 7))))
}

/// The sign bytes of four points from 28 bits of a word.
#[inline(always)]
pub(super) fn four_even_signs<S: Simd>(s: S, word: S::I32) -> S::Codes {
    let [a, b, c, d] = four!(l => {
        s.and_i32(s.shl_i32(word, l as u32), s.splat_i32(0x7f << (8 * l)))
    });
    even_signs_of(s, s.as_codes(s.or_i32(s.or_i32(a, b), s.or_i32(c, d))))
}

/// 2 · nibble + 1, of the nibble of each lane from bit `shift` on.
#[inline(always)]
pub(super) fn odd_scale<S: Simd>(s: S, bits: S::I32, shift: u32) -> S::I32 {
    let nibble = s.and_i32(s.shr_i32(bits, shift), s.splat_i32(15));
    s.or_i32(s.shl_i32(nibble, 1), s.splat_i32(1))
}

/// Nibble `g` of some bytes, as the odd number that it stands for.
pub(super) fn odd(bytes: &[u8], g: usize) -> f32 {
    f32::from(2 * (bytes[g / 2] >> (4 * (g % 2)) & 15) + 1)
}

/// The f16 at byte `at`, times a power of two.
pub(super) fn unit_at(block: &[u8], at: usize, factor: f32) -> f32 {
    factor * bits::f16_at(block, at)
}

/// What the `blocks.h` of several formats include: names and contents.
pub fn gpu_sources() -> &'static [(&'static str, String)] {
    static SOURCES: LazyLock<Vec<(&str, String)>> = LazyLock::new(|| {
        vec![
            ("format/grid.h", include_str!("grid.h").to_owned()),
            ("format/shifted.h", include_str!("shifted.h").to_owned()),
            ("format/iq2_xxs_points.h", gpu_table("iq2_xxs_points", &IQ2_XXS, 8)),
            ("format/iq2_xs_points.h", gpu_table("iq2_xs_points", &IQ2_XS, 8)),
            ("format/iq2_s_points.h", gpu_table("iq2_s_points", &IQ2_S, 8)),
            ("format/iq1_points.h", gpu_table("iq1_points", &IQ1, 8)),
            ("format/iq3_xxs_points.h", gpu_table("iq3_xxs_points", &IQ3_XXS, 4)),
            ("format/iq3_s_points.h", gpu_table("iq3_s_points", &IQ3_S, 4)),
        ]
    });
    &SOURCES
}

/// A grid as a table in a kernel's source. Digit `i` of a point is nibble `i` there.
fn gpu_table(name: &str, points: &[u32], digits: usize) -> String {
    let word = |point: &u32| (0..digits).fold(0, |word, i| word | (digit(*point, i) as u32) << (4 * i));
    let words: Vec<String> = points.iter().map(|point| format!("{:#x}", word(point))).collect();
    let kind = if digits == 4 { "u16" } else { "u32" };
    format!(
        "#pragma once\n#include \"device.h\"\nCONSTANT({kind}, {name}, {}) = {{{}}};\n",
        words.len(),
        words.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden file has the points of all grids as signed bytes, as gguf has them.
    #[test]
    fn points_are_those_of_gguf() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/formats/grids.bin");
        let golden = std::fs::read(path).unwrap();
        let mut got = Vec::new();
        let mut push = |points: &[u32], values: &[i8], digits: usize| {
            got.extend(points.iter().flat_map(|&p| (0..digits).map(move |i| values[digit(p, i)] as u8)));
        };
        push(&IQ2_XXS, &super::super::iq2_xxs::VALUES, 8);
        push(&IQ2_XS, &super::super::iq2_xxs::VALUES, 8);
        push(&IQ2_S, &super::super::iq2_xxs::VALUES, 8);
        push(&IQ1, &[-1, 0, 1], 8);
        push(&IQ3_XXS, &super::super::iq3_xxs::VALUES, 4);
        push(&IQ3_S, &super::super::iq3_s::VALUES, 4);
        assert!(got == golden);
    }

    #[test]
    fn signs_have_even_parity() {
        assert_eq!((0..128).filter(|&seven| even_signs(seven).count_ones() % 2 == 1).count(), 0);
        assert_eq!([0, 1, 3, 0x7f].map(even_signs), [0, 0x81, 3, 0xff]);
    }
}

//! `TQ1_0`: super-blocks of 256 ternary elements, five to a byte. value = d · (digit − 1).
//!
//! A byte is a fraction of 256 with digits of base 3: digit `n` is the integer part of 3 · (byte · 3ⁿ mod 256) / 256.
//!
//! Block (54 bytes): `qs` 48 bytes, `qh` 4 bytes, `d` f16. Element `32·n + i` is digit `n` of byte `i` for `n < 5`, element
//! `160 + 16·n + i` digit `n` of byte `32 + i`, element `240 + 4·n + i` digit `n` of byte `48 + i`.

use super::tq2_0::ternary;
use super::{BlockFormat, Plane, Quantised, bits, plane};
use crate::simd::Simd;

/// The format `TQ1_0`.
#[derive(Clone, Copy, Default)]
pub struct TQ1_0;

const D: usize = 52;

/// 3ⁿ.
const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

/// Byte and digit of element `i`.
const fn place(i: usize) -> (usize, usize) {
    match i {
        0..160 => (i % 32, i / 32),
        160..240 => (32 + i % 16, (i - 160) / 16),
        _ => (48 + i % 4, (i - 240) / 4),
    }
}

impl BlockFormat for TQ1_0 {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 54;
    const PLANES: &'static [Plane] = &[plane(0, 48, 4), plane(48, 4, 4), plane(52, 2, 2)];
    const ENCODE_NMSE: f64 = 6.9e-1;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, D);
        for (i, o) in out.iter_mut().enumerate() {
            let (byte, n) = place(i);
            let digit = u16::from(block[byte].wrapping_mul(POWERS[n])) * 3 >> 8;
            *o = d * (f32::from(digit) - 1.0);
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(256)) {
            let mut numbers = [0; D];
            for (i, digit) in ternary(values, block, D).into_iter().enumerate() {
                let (byte, n) = place(i);
                numbers[byte] += u16::from(digit) * u16::from(POWERS[4 - n]);
            }
            // The least fraction with these digits, of 3⁵ = 243 numbers.
            for (byte, number) in block.iter_mut().zip(numbers) {
                *byte = (number * 256).div_ceil(243) as u8;
            }
        }
    }
}

impl Quantised for TQ1_0 {
    const LARGEST: i32 = 2;
    const ZERO: i32 = 1;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        eight!(j => {
            let (byte, n) = place(32 * g + 4 * j);
            digits(s, s.load_i32(tile, 16 * byte), n)
        })
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.load_f16(tile, 16 * D)
    }
}

/// Digit `n` of each byte.
#[inline(always)]
fn digits<S: Simd>(s: S, bytes: S::I32, n: usize) -> S::Codes {
    // Two bytes at a time, in 16 bits each.
    let low = digits_of_two(s, bytes, n);
    let high = digits_of_two(s, s.shr_i32(bytes, 8), n);
    s.as_codes(s.or_i32(low, s.shl_i32(high, 8)))
}

#[inline(always)]
fn digits_of_two<S: Simd>(s: S, bytes: S::I32, n: usize) -> S::I32 {
    let byte = s.splat_i32(0x00ff_00ff);
    let rest = s.and_i32(s.mul_i32(s.and_i32(bytes, byte), s.splat_i32(i32::from(POWERS[n]))), byte);
    let three = s.add_i32(rest, s.shl_i32(rest, 1));
    s.and_i32(s.shr_i32(three, 8), s.splat_i32(0x0003_0003))
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `digits_of_two(s, s.shr_i32(bytes, 8), n)` => `digits_of_two(s, bytes, n)`
// [matmul] `s.splat_i32(i32::from(POWERS[n]))), byte)` => `s.splat_i32(i32::from(POWERS[n]))), s.splat_i32(-1))`
// [formats] `160..240 => (32 + i % 16, (i - 160) / 16)` => `160..240 => (32 + (i - 160) / 5, i % 5)`

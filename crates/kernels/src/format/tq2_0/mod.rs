//! `TQ2_0`: super-blocks of 256 elements of two bits, for models that were trained with ternary weights. value = d · (q − 1).
//!
//! Block (66 bytes): `qs` 64 bytes: element `128·h + 32·c + i` is at bit `2·c` of byte `32·h + i`; `d` f16.

use super::bits::{self, Field};
use super::{BlockFormat, Plane, Quantised, fit, plane};
use crate::simd::Simd;

/// The format `TQ2_0`.
#[derive(Clone, Copy, Default)]
pub struct TQ2_0;

const D: usize = 64;

#[inline(always)]
fn code(g: usize) -> Field {
    Field { start: 32 * (g / 4), shift: 2 * (g % 4), bits: 2 }
}

/// Stores the largest magnitude as f16 at byte `at`, and returns the nearest ternary code of each element.
pub(super) fn ternary(values: &[f32], block: &mut [u8], at: usize) -> [u8; 256] {
    let largest = values.iter().fold(0f32, |m, v| if v.abs() > m { v.abs() } else { m });
    fit::put_f16(block, at, largest);
    let mut codes = [1; 256];
    for (code, value) in codes.iter_mut().zip(values) {
        let q = if largest > 0.0 { (value / largest).round() } else { 0.0 };
        *code = (q + 1.0).clamp(0.0, 2.0) as u8;
    }
    codes
}

impl BlockFormat for TQ2_0 {
    const BLOCK: usize = 256;
    const GROUP: usize = 32;
    const BYTES: usize = 66;
    const PLANES: &'static [Plane] = &[plane(0, 64, 4), plane(64, 2, 2)];
    const ENCODE_NMSE: f64 = 6.9e-1;
    const READ_ONLY: bool = true;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = bits::f16_at(block, D);
        for (g, out) in out.chunks_exact_mut(32).enumerate() {
            for (i, o) in out.iter_mut().enumerate() {
                *o = d * (f32::from(code(g).get(block, i)) - 1.0);
            }
        }
    }

    #[inline(always)]
    fn encode<S: Simd>(_: S, values: &[f32], blocks: &mut [u8]) {
        for (block, values) in blocks.chunks_exact_mut(Self::BYTES).zip(values.chunks_exact(256)) {
            block.fill(0);
            for (i, q) in ternary(values, block, D).into_iter().enumerate() {
                code(i / 32).set(block, i % 32, q);
            }
        }
    }
}

impl Quantised for TQ2_0 {
    const LARGEST: i32 = 3;
    const ZERO: i32 = 1;
    const INTEGER_SCALES: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
        code(g).codes(s, tile, 0)
    }

    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.load_f16(tile, 16 * D)
    }
}

// Mutations (`cargo xtask prove mutations`):
// [matmul] `code(g).codes(s, tile, 0)` => `code(g % 4).codes(s, tile, 0)`
// [matmul] `s.load_f16(tile, 16 * D)` => `s.load_f16(tile, 0)`
// [formats] `start: 32 * (g / 4), shift: 2 * (g % 4)` => `start: 32 * (g % 2), shift: 2 * (g / 2)`

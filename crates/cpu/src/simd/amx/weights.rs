//! Unpacked weights as a tile of bfloat16.
//!
//! All formats take one way: codes become float16 (exact), which one multiplication with subtraction makes weights, and
//! two integer instructions make bfloat16 of their bits: `vpmulhrsw` by 2¹² shifts right by three and rounds. The exponent
//! keeps its bits, so it is lower by 112, the difference of the two formats' biases, which [`DOWN`] returns.
//!
//! Float16 has few exponents. So the scales of a weight row are divided by a power of two, which its results are multiplied
//! by. Weights below 2⁻²⁰ of the row's largest scale count as zero.

use super::{Avx512, Line, Tile};
use crate::layout::ROWS;
use gristmill_kernels::format::{Quantised, Scale};
use gristmill_kernels::simd::{Simd, WeightSlice};
use std::arch::x86_64::*;
use std::mem::transmute;

/// The largest scale of a row becomes 2⁶ to 2⁷: codes of up to 255, and a minimum, are then below float16's largest.
const LARGEST: f32 = 6.0;

/// Minima count 2⁻⁶ of scales.
const MINIMA: f32 = 1.0 / 64.0;

/// The exponent of results, apart from those of the activation row and of the weight row.
pub(super) const DOWN: f32 = 112.0 - LARGEST - super::activations::LARGEST as f32;

/// Of each of 16 weight rows, the exponent of its largest scale; not finite if a scale is not.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn exponents<F: Quantised>(s: Avx512, group: &[u8]) -> __m512 {
    let mut largest = _mm512_setzero_si512();
    for tile in group.chunks_exact(ROWS * F::BYTES) {
        if const { F::INTEGER_SCALES && !F::HAS_MIN } {
            largest = larger(largest, s.mul(F::unit(s, tile), s.splat(128.0)));
            continue;
        }
        for g in 0..F::BLOCK / 32 {
            for Scale { scale, min } in F::scales(s, tile, g) {
                largest = larger(largest, scale);
                if F::HAS_MIN {
                    largest = larger(largest, s.mul(min, s.splat(MINIMA)));
                }
            }
        }
    }
    // Of two of which one is NaN, the instruction returns the second. Zero has the exponent −∞.
    _mm512_max_ps(s.splat(-100.0), _mm512_getexp_ps(_mm512_castsi512_ps(largest)))
}

/// The larger magnitude by its bits: infinities and NaN are larger than all others.
#[target_feature(enable = "avx512f")]
#[inline]
fn larger(largest: __m512i, v: __m512) -> __m512i {
    _mm512_max_epi32(largest, _mm512_castps_si512(_mm512_abs_ps(v)))
}

/// 32 columns of 16 weight rows times 2^([`DOWN`] − `exponents`) as a tile of 16 pairs of columns. `zero` is subtracted from
/// each code.
#[target_feature(enable = "avx512f,avx512bw,avx512fp16")]
#[inline]
pub(super) fn unpack(weights: &WeightSlice<Avx512>, zero: f32, exponents: __m512, out: &mut Tile) {
    let up = _mm512_sub_ps(_mm512_set1_ps(LARGEST), exponents);
    for (half, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let Scale { scale, min } = weights.scales[half];
        let scale = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_scalef_ps(scale, up));
        // What is subtracted has the rounded scale, so that zeros are exact.
        let zeros = _mm512_mul_ps(_mm512_cvtph_ps(scale), _mm512_set1_ps(zero));
        let min = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_add_ps(zeros, _mm512_scalef_ps(min, up)));
        let (scale, min) = (twice(scale), twice(min));
        for (codes, rows) in weights.codes[4 * half..].iter().zip(out.as_chunks_mut::<2>().0) {
            let even = _mm512_and_si512(*codes, _mm512_set1_epi16(255));
            let odd = _mm512_srli_epi16::<8>(*codes);
            store(_mm512_fmsub_ph(_mm512_cvtepu16_ph(even), scale, min), &mut rows[0]);
            store(_mm512_fmsub_ph(_mm512_cvtepu16_ph(odd), scale, min), &mut rows[1]);
        }
    }
}

/// Each number for both columns of its row.
#[target_feature(enable = "avx512f")]
#[inline]
fn twice(v: __m256i) -> __m512h {
    let v = _mm512_cvtepu16_epi32(v);
    // SAFETY: both are 64 bytes, of which any are valid.
    unsafe { transmute::<__m512i, __m512h>(_mm512_or_si512(v, _mm512_slli_epi32::<16>(v))) }
}

/// Float16 as bfloat16 with the exponent's bits. Of negative numbers, the shift leaves copies of the sign in three bits.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store(v: __m512h, out: &mut Line) {
    // SAFETY: both are 64 bytes, of which any are valid.
    let bits = unsafe { transmute::<__m512h, __m512i>(v) };
    let shifted = _mm512_mulhrs_epi16(bits, _mm512_set1_epi16(1 << 12));
    let bits = _mm512_and_si512(shifted, _mm512_set1_epi16(0x8fff_u16 as i16));
    // SAFETY: a line has 64 bytes, aligned.
    unsafe { _mm512_store_si512(out.0.as_mut_ptr().cast(), bits) };
}

//! Products of 16 weight rows with several activation rows by `vpmaddubsw`, in a fixed instruction order.
//!
//! The compiler orders such products by activation row and spills the codes to the stack, because 16 rows × 32 columns
//! do not fit into the registers. In assembly, two words of codes stay in registers for all activation rows of a call.
//! Each broadcast of activations serves both halves of the weight rows.

use super::Halves;
use gristmill_kernels::two;
use std::arch::asm;
use std::arch::x86_64::*;

/// Sums of each of `N` rows, plus scale · products over `4 · J` columns. Codes are unsigned. Sums of `pair_sums` (at
/// least 2) products of two columns must fit into 16 bits.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn unsigned<const N: usize, const J: usize>(
    pair_sums: usize,
    mut sums: [Halves<__m256i>; N],
    codes: &[Halves<__m256i>; J],
    scale: &Halves<__m256i>,
    x: [&[i32; J]; N],
) -> [Halves<__m256i>; N] {
    if pair_sums < 4 {
        scaled_words::<N, J, 0>(&mut sums, codes, scale, x);
        scaled_words::<N, J, 8>(&mut sums, codes, scale, x);
        if J > 4 {
            scaled_words::<N, J, 16>(&mut sums, codes, scale, x);
            scaled_words::<N, J, 24>(&mut sums, codes, scale, x);
        }
        return sums;
    }
    if pair_sums < 8 || J == 4 {
        scaled_four_words::<N, J, 0>(&mut sums, codes, scale, x);
        if J > 4 {
            scaled_four_words::<N, J, 16>(&mut sums, codes, scale, x);
        }
        return sums;
    }
    let mut pairs = first_words::<N, J, 0>(codes, x);
    more_words::<N, J, 8>(&mut pairs, codes, x);
    more_words::<N, J, 16>(&mut pairs, codes, x);
    more_words::<N, J, 24>(&mut pairs, codes, x);
    add_scaled(&mut sums, pairs, scale);
    sums
}

/// sums + both 16-bit numbers of a lane, times the scale.
#[target_feature(enable = "avx2")]
#[inline]
fn add_scaled<const N: usize>(sums: &mut [Halves<__m256i>; N], pairs: [Halves<__m256i>; N], scale: &Halves<__m256i>) {
    for t in 0..N {
        sums[t] = two!(i => _mm256_add_epi32(sums[t][i], _mm256_madd_epi16(pairs[t][i], scale[i])));
    }
}

/// 16-bit sums of the two words at byte `AT` of the activations.
#[target_feature(enable = "avx2")]
#[inline]
fn first_words<const N: usize, const J: usize, const AT: usize>(
    codes: &[Halves<__m256i>; J],
    x: [&[i32; J]; N],
) -> [Halves<__m256i>; N] {
    let [[a0, a1], [b0, b1]] = [codes[AT / 4], codes[AT / 4 + 1]];
    let mut pairs = [[_mm256_setzero_si256(); 2]; N];
    for t in 0..N {
        let [low, high] = &mut pairs[t];
        // SAFETY: reads 8 of the row's 4 · `J` bytes at `AT`, as the indices above prove.
        unsafe {
            asm!(
                "vpbroadcastd {x0}, [{x} + {at}]",
                "vpmaddubsw {low}, {a0}, {x0}",
                "vpmaddubsw {high}, {a1}, {x0}",
                "vpbroadcastd {x0}, [{x} + {at} + 4]",
                "vpmaddubsw {y}, {b0}, {x0}",
                "vpmaddubsw {x0}, {b1}, {x0}",
                "vpaddw {low}, {low}, {y}",
                "vpaddw {high}, {high}, {x0}",
                x = in(reg) x[t], at = const AT,
                a0 = in(ymm_reg) a0, a1 = in(ymm_reg) a1, b0 = in(ymm_reg) b0, b1 = in(ymm_reg) b1,
                x0 = out(ymm_reg) _, y = out(ymm_reg) _, low = out(ymm_reg) *low, high = out(ymm_reg) *high,
                options(nostack, preserves_flags)
            );
        }
    }
    pairs
}

/// Adds the two words at byte `AT` of the activations to 16-bit sums.
#[target_feature(enable = "avx2")]
#[inline]
fn more_words<const N: usize, const J: usize, const AT: usize>(
    pairs: &mut [Halves<__m256i>; N],
    codes: &[Halves<__m256i>; J],
    x: [&[i32; J]; N],
) {
    let [[a0, a1], [b0, b1]] = [codes[AT / 4], codes[AT / 4 + 1]];
    for t in 0..N {
        let [low, high] = &mut pairs[t];
        // SAFETY: reads 8 of the row's 4 · `J` bytes at `AT`, as the indices above prove.
        unsafe {
            asm!(
                "vpbroadcastd {x0}, [{x} + {at}]",
                "vpmaddubsw {y}, {a0}, {x0}",
                "vpmaddubsw {x0}, {a1}, {x0}",
                "vpaddw {low}, {low}, {y}",
                "vpaddw {high}, {high}, {x0}",
                "vpbroadcastd {x0}, [{x} + {at} + 4]",
                "vpmaddubsw {y}, {b0}, {x0}",
                "vpmaddubsw {x0}, {b1}, {x0}",
                "vpaddw {low}, {low}, {y}",
                "vpaddw {high}, {high}, {x0}",
                x = in(reg) x[t], at = const AT,
                a0 = in(ymm_reg) a0, a1 = in(ymm_reg) a1, b0 = in(ymm_reg) b0, b1 = in(ymm_reg) b1,
                x0 = out(ymm_reg) _, y = out(ymm_reg) _, low = inout(ymm_reg) *low, high = inout(ymm_reg) *high,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// sums += scale · the two words at byte `AT` of the activations, two products per 16-bit sum.
#[target_feature(enable = "avx2")]
#[inline]
fn scaled_words<const N: usize, const J: usize, const AT: usize>(
    sums: &mut [Halves<__m256i>; N],
    codes: &[Halves<__m256i>; J],
    scale: &Halves<__m256i>,
    x: [&[i32; J]; N],
) {
    let [[a0, a1], [b0, b1]] = [codes[AT / 4], codes[AT / 4 + 1]];
    for t in 0..N {
        let [low, high] = &mut sums[t];
        // SAFETY: reads 8 of the row's 4 · `J` bytes at `AT`, as the indices above prove, and the scale.
        unsafe {
            asm!(
                "vpbroadcastd {x0}, [{x} + {at}]",
                "vpmaddubsw {y}, {a0}, {x0}",
                "vpmaddubsw {x0}, {a1}, {x0}",
                "vpbroadcastd {x1}, [{x} + {at} + 4]",
                "vpmaddubsw {z}, {b0}, {x1}",
                "vpmaddubsw {x1}, {b1}, {x1}",
                "vpaddw {y}, {y}, {z}",
                "vpaddw {x0}, {x0}, {x1}",
                "vpmaddwd {y}, {y}, [{scale}]",
                "vpmaddwd {x0}, {x0}, [{scale} + 32]",
                "vpaddd {low}, {low}, {y}",
                "vpaddd {high}, {high}, {x0}",
                x = in(reg) x[t], at = const AT, scale = in(reg) scale,
                a0 = in(ymm_reg) a0, a1 = in(ymm_reg) a1, b0 = in(ymm_reg) b0, b1 = in(ymm_reg) b1,
                x0 = out(ymm_reg) _, x1 = out(ymm_reg) _, y = out(ymm_reg) _, z = out(ymm_reg) _,
                low = inout(ymm_reg) *low, high = inout(ymm_reg) *high,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// sums += scale · the four words at byte `AT` of the activations, four products per 16-bit sum.
#[target_feature(enable = "avx2")]
#[inline]
fn scaled_four_words<const N: usize, const J: usize, const AT: usize>(
    sums: &mut [Halves<__m256i>; N],
    codes: &[Halves<__m256i>; J],
    scale: &Halves<__m256i>,
    x: [&[i32; J]; N],
) {
    let [[a0, a1], [b0, b1]] = [codes[AT / 4], codes[AT / 4 + 1]];
    let [[c0, c1], [d0, d1]] = [codes[AT / 4 + 2], codes[AT / 4 + 3]];
    for t in 0..N {
        let [low, high] = &mut sums[t];
        // SAFETY: reads 16 of the row's 4 · `J` bytes at `AT`, as the indices above prove, and the scale.
        unsafe {
            asm!(
                "vpbroadcastd {x0}, [{x} + {at}]",
                "vpmaddubsw {p0}, {a0}, {x0}",
                "vpmaddubsw {p1}, {a1}, {x0}",
                "vpbroadcastd {x0}, [{x} + {at} + 4]",
                "vpmaddubsw {y}, {b0}, {x0}",
                "vpmaddubsw {x0}, {b1}, {x0}",
                "vpaddw {p0}, {p0}, {y}",
                "vpaddw {p1}, {p1}, {x0}",
                "vpbroadcastd {x0}, [{x} + {at} + 8]",
                "vpmaddubsw {y}, {c0}, {x0}",
                "vpmaddubsw {x0}, {c1}, {x0}",
                "vpaddw {p0}, {p0}, {y}",
                "vpaddw {p1}, {p1}, {x0}",
                "vpbroadcastd {x0}, [{x} + {at} + 12]",
                "vpmaddubsw {y}, {d0}, {x0}",
                "vpmaddubsw {x0}, {d1}, {x0}",
                "vpaddw {p0}, {p0}, {y}",
                "vpaddw {p1}, {p1}, {x0}",
                "vpmaddwd {p0}, {p0}, [{scale}]",
                "vpmaddwd {p1}, {p1}, [{scale} + 32]",
                "vpaddd {low}, {low}, {p0}",
                "vpaddd {high}, {high}, {p1}",
                x = in(reg) x[t], at = const AT, scale = in(reg) scale,
                a0 = in(ymm_reg) a0, a1 = in(ymm_reg) a1, b0 = in(ymm_reg) b0, b1 = in(ymm_reg) b1,
                c0 = in(ymm_reg) c0, c1 = in(ymm_reg) c1, d0 = in(ymm_reg) d0, d1 = in(ymm_reg) d1,
                x0 = out(ymm_reg) _, y = out(ymm_reg) _, p0 = out(ymm_reg) _, p1 = out(ymm_reg) _,
                low = inout(ymm_reg) *low, high = inout(ymm_reg) *high,
                options(nostack, preserves_flags)
            );
        }
    }
}

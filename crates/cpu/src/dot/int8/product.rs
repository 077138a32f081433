//! Products of unpacked columns whose scales are floats.

use super::super::super::act::Int8Block;
use super::super::super::layout::Lanes;
use super::class::Class;
use super::slice::{Slice, codes};
use gristmill_kernels::format::{Quantised, Scale};
use gristmill_kernels::simd::{Simd, WeightSlice};

impl<S: Simd> Slice<S> for WeightSlice<S> {
    #[inline(always)]
    fn zero(s: S) -> Self {
        let scale = Scale { scale: s.splat(0.0), min: s.splat(0.0) };
        Self { codes: [s.splat_codes(0); 8], scales: [scale; 2] }
    }

    #[inline(always)]
    fn unpack<F: Quantised>(s: S, tile: &[u8], g: usize) -> Self {
        Self { codes: codes::<F, S>(s, tile, g), scales: F::scales(s, tile, g) }
    }

    #[inline(always)]
    fn multiply<K: Class, const N: usize>(
        s: S,
        slices: &[Self],
        zero: i32,
        rows: [&[Int8Block]; N],
        out: &mut [Lanes],
    ) {
        if let (32, Ok(rows), Ok(out)) = (K::GROUP, rows[..].try_into(), (&mut *out).try_into())
            && s.multiply_eight(slices, rows, -bias::<K, S>(zero), K::HAS_MIN, out)
        {
            return;
        }
        let mut sums = [s.splat(0.0); N];
        for t in 0..N {
            sums[t] = s.load_f32(&out[t], 0);
        }
        for (i, columns) in slices.iter().enumerate() {
            add_products::<K, S, N>(s, &mut sums, columns, zero, rows.map(|row| &row[i]));
        }
        for t in 0..N {
            s.store_f32(sums[t], &mut out[t], 0);
        }
    }
}

/// sums += Σ over 32 columns of weight · activation, for `N` rows of activations.
#[inline(always)]
pub(super) fn add_products<K: Class, S: Simd, const N: usize>(
    s: S,
    sums: &mut [S::F32; N],
    columns: &WeightSlice<S>,
    zero: i32,
    x: [&Int8Block; N],
) {
    let WeightSlice { codes, scales } = columns;
    if K::GROUP == 32 {
        let d = dot_codes::<K, S, N, 8>(s, codes, zero, x, 0);
        for t in 0..N {
            let x = x[t];
            sums[t] = s.mul_add(s.to_f32(d[t]), s.mul(scales[0].scale, s.splat(x.scale)), sums[t]);
            if K::HAS_MIN {
                sums[t] = s.mul_add(scales[0].min, s.splat(-x.sum), sums[t]);
            }
        }
    } else {
        let first = dot_codes::<K, S, N, 4>(s, &codes.as_chunks().0[0], zero, x, 0);
        let second = dot_codes::<K, S, N, 4>(s, &codes.as_chunks().0[1], zero, x, 1);
        for t in 0..N {
            let x = x[t];
            let product = s.mul(s.to_f32(first[t]), scales[0].scale);
            let product = s.mul_add(s.to_f32(second[t]), scales[1].scale, product);
            sums[t] = s.mul_add(product, s.splat(x.scale), sums[t]);
            if K::HAS_MIN {
                sums[t] = s.mul_add(scales[0].min, s.splat(-x.scaled_half_sums[0]), sums[t]);
                sums[t] = s.mul_add(scales[1].min, s.splat(-x.scaled_half_sums[1]), sums[t]);
            }
        }
    }
}

/// The excess of codes over their values, at a level.
#[inline(always)]
fn bias<K: Class, S: Simd>(zero: i32) -> i32 {
    let zero = if K::HAS_ZERO { zero } else { 0 };
    zero + if K::SIGNED { S::SIGNED_BIAS } else { 0 }
}

/// Σ of (code − bias) · x over `4 · J` columns, which are all 32, or `half` of them.
#[inline(always)]
fn dot_codes<K: Class, S: Simd, const N: usize, const J: usize>(
    s: S,
    codes: &[S::Codes; J],
    zero: i32,
    x: [&Int8Block; N],
    half: usize,
) -> [S::I32; N] {
    let (bias, q) = (-bias::<K, S>(zero), x.map(|x| &x.q.as_chunks().0[half]));
    // The codes' bias is subtracted as an integer, before any rounding.
    if !S::FAST_PAIRS {
        let start = x.map(|x| bias * if J == 8 { x.half_sums[0] + x.half_sums[1] } else { x.half_sums[half] });
        return s.dots::<N, J>(K::SIGNED, K::PAIR_SUMS, start, codes, q);
    }
    let mut sums = [s.splat_i32(0); N];
    if K::HAS_ZERO || K::SIGNED && S::SIGNED_BIAS != 0 {
        let low = bias & 0xffff;
        let pair = s.splat_i32(if J == 8 { low | low << 16 } else { low << (16 * half) });
        for t in 0..N {
            sums[t] = s.dot_pairs(sums[t], pair, x[t].half_sum_pair);
        }
    }
    for j in 0..J {
        for t in 0..N {
            let x = q[t][j];
            sums[t] = if K::SIGNED { s.dot_signed(sums[t], codes[j], x) } else { s.dot(sums[t], codes[j], x) };
        }
    }
    sums
}

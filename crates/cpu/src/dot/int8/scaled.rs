//! Formats whose scales are integers times the unit of a block, at levels that multiply by integers.
//!
//! The products of 32 columns become one float; those of a block are multiplied by the unit at its end. Minima are
//! subtracted before.

use super::super::super::act::Int8Block;
use super::super::super::layout::{Lanes, ROWS};
use super::class::{Class, OfFormat};
use super::slice::{Slice, codes, prefetch_slice};
use gristmill_kernels::format::{Quantised, Scale};
use gristmill_kernels::simd::Simd;
use gristmill_kernels::two;

/// A slice of a block with integer scales.
#[derive(Clone, Copy)]
pub(super) struct Columns<S: Simd> {
    codes: [S::Codes; 8],
    /// Scales of each half, for [`Simd::scaled_dots`].
    scales: [S::I32; 2],
    /// −`ZERO` · scale of each half, in pairs.
    bias: S::I32,
    min: [S::F32; 2],
    /// Unit of the block's scales.
    unit: S::F32,
}

impl<S: Simd> Slice<S> for Columns<S> {
    #[inline(always)]
    fn zero(s: S) -> Self {
        let (float, int) = (s.splat(0.0), s.splat_i32(0));
        Self { codes: [s.splat_codes(0); 8], scales: [int; 2], bias: int, min: [float; 2], unit: float }
    }

    #[inline(always)]
    fn unpack<F: Quantised>(s: S, tile: &[u8], g: usize) -> Self {
        const { assert!(F::BLOCK == 256 || !F::INTEGER_SCALES, "a panel is one block") }
        let integers = F::integers(s, tile, g);
        let zero = s.splat_i32(-F::ZERO);
        let scales =
            if F::HAS_MIN { F::scales(s, tile, g) } else { [Scale { scale: s.splat(0.0), min: s.splat(0.0) }; 2] };
        Self {
            codes: codes::<F, S>(s, tile, g),
            scales: two!(half => s.dot_scales(integers[half])),
            bias: s.pairs(s.mul_i32(zero, integers[0]), s.mul_i32(zero, integers[1])),
            min: two!(half => scales[half].min),
            unit: F::unit(s, tile),
        }
    }

    #[inline(always)]
    fn multiply<K: Class, const N: usize>(
        s: S,
        slices: &[Self],
        _zero: i32,
        rows: [&[Int8Block]; N],
        out: &mut [Lanes],
    ) {
        let Some(first) = slices.first() else { return };
        if K::HAS_MIN {
            subtract_minima::<K, S, N>(s, slices, rows, out);
        }
        let mut units = [s.splat(0.0); N];
        for (i, columns) in slices.iter().enumerate() {
            columns.add_products::<K, N>(s, &mut units, rows.map(|row| &row[i]));
        }
        for t in 0..N {
            let sum = s.load_f32(&out[t], 0);
            s.store_f32(s.mul_add(units[t], first.unit, sum), &mut out[t], 0);
        }
    }
}

/// out −= Σ of minimum · x, for `N` rows beside each other: the sum of one row alone would wait for itself.
#[inline(always)]
fn subtract_minima<K: Class, S: Simd, const N: usize>(
    s: S,
    slices: &[Columns<S>],
    rows: [&[Int8Block]; N],
    out: &mut [Lanes],
) {
    let mut sums = [s.splat(0.0); N];
    for t in 0..N {
        sums[t] = s.load_f32(&out[t], 0);
    }
    for (i, columns) in slices.iter().enumerate() {
        for t in 0..N {
            sums[t] = columns.subtract_minima::<K>(s, sums[t], &rows[t][i]);
        }
    }
    for t in 0..N {
        s.store_f32(sums[t], &mut out[t], 0);
    }
}

impl<S: Simd> Columns<S> {
    /// units += Σ of integer scale · (code − ZERO) · x, for `N` rows of activations.
    #[inline(always)]
    fn add_products<K: Class, const N: usize>(&self, s: S, units: &mut [S::F32; N], x: [&Int8Block; N]) {
        const { assert!(!K::SIGNED || S::SIGNED_BIAS == 0 || !S::INTEGER_SCALES, "codes have no bias but ZERO") }
        let mut sums = [s.splat_i32(0); N];
        if K::HAS_ZERO {
            for t in 0..N {
                sums[t] = s.dot_pairs(sums[t], self.bias, x[t].half_sum_pair);
            }
        }
        if K::GROUP == 32 {
            let q = x.map(|x| &x.q);
            sums = s.scaled_dots::<N, 8>(K::SIGNED, K::PAIR_SUMS, sums, &self.codes, &self.scales[0], q);
        } else {
            let codes = &self.codes.as_chunks().0[0];
            let q = x.map(|x| &x.q.as_chunks().0[0]);
            sums = s.scaled_dots::<N, 4>(K::SIGNED, K::PAIR_SUMS, sums, codes, &self.scales[0], q);
            let codes = &self.codes.as_chunks().0[1];
            let q = x.map(|x| &x.q.as_chunks().0[1]);
            sums = s.scaled_dots::<N, 4>(K::SIGNED, K::PAIR_SUMS, sums, codes, &self.scales[1], q);
        }
        for t in 0..N {
            units[t] = s.mul_add(s.to_f32(sums[t]), s.splat(x[t].scale), units[t]);
        }
    }

    /// sum − Σ of minimum · x.
    #[inline(always)]
    fn subtract_minima<K: Class>(&self, s: S, sum: S::F32, x: &Int8Block) -> S::F32 {
        if !K::HAS_MIN {
            return sum;
        }
        if K::GROUP == 32 {
            return s.mul_add(self.min[0], s.splat(-x.sum), sum);
        }
        let sum = s.mul_add(self.min[0], s.splat(-x.scaled_half_sums[0]), sum);
        s.mul_add(self.min[1], s.splat(-x.scaled_half_sums[1]), sum)
    }
}

/// The same sums in the same order for one row, which takes the columns as they are unpacked.
#[inline(always)]
pub(super) fn one_row<F: Quantised, S: Simd>(s: S, group: &[u8], row: &[Int8Block], out: &mut Lanes) {
    let slices = F::BLOCK / 32;
    let mut sum = s.splat(0.0);
    for (tile, blocks) in group.chunks_exact(ROWS * F::BYTES).zip(row.chunks_exact(slices)) {
        let mut units = [s.splat(0.0)];
        for (g, x) in blocks.iter().enumerate() {
            if F::GROUP == 16 || s.prefetches() {
                prefetch_slice(s, tile, g, slices);
            }
            let columns = Columns::unpack::<F>(s, tile, g);
            columns.add_products::<OfFormat<F, true>, 1>(s, &mut units, [x]);
            sum = columns.subtract_minima::<OfFormat<F, true>>(s, sum, x);
        }
        sum = s.mul_add(units[0], F::unit(s, tile), sum);
    }
    s.store_f32(sum, out, 0);
}

//! Quantised weights times activations in int8.
//!
//! Several rows share a *panel*: up to 256 columns of the 16 weight rows, unpacked once into the L1 cache for all of
//! them. [`Simd::INT8_ROWS`] rows at a time pass over it, with integer sums in registers. A single row multiplies the
//! columns as they are unpacked. Both add up the same products in the same order.

mod scaled;

use super::super::act::Int8Block;
use super::super::layout::{Lanes, ROWS};
use gristmill_kernels::eight;
use gristmill_kernels::format::{Quantised, Scale};
use gristmill_kernels::simd::{Kernel, Simd, WeightSlice};
use std::array::from_fn;
use std::marker::PhantomData;

/// A row group times all activation rows.
pub(super) struct Int8Dot<'a, F> {
    pub(super) group: &'a [u8],
    pub(super) rows: &'a [&'a [Int8Block]],
    pub(super) out: &'a mut [Lanes],
    pub(super) format: PhantomData<F>,
}

/// 32 columns of 16 weight rows, unpacked.
pub(super) trait Slice<S: Simd>: Copy {
    /// A slice of zeros.
    fn zero(s: S) -> Self;
    /// Slice `g` of a tile.
    fn unpack<F: Quantised>(s: S, tile: &[u8], g: usize) -> Self;
    /// out += products of the slices with `N` rows of as many blocks.
    fn multiply<F: Quantised, const N: usize>(s: S, slices: &[Self], rows: [&[Int8Block]; N], out: &mut [Lanes]);
}

/// The most slices of 32 columns in a panel.
const PANEL: usize = 8;

impl<F: Quantised> Kernel for Int8Dot<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let scaled = S::INTEGER_SCALES && F::INTEGER_SCALES;
        match (self.rows, &mut *self.out) {
            ([row], [out]) if scaled => scaled::one_row::<F, S>(s, self.group, row, out),
            ([row], [out]) => one_row::<F, S>(s, self.group, row, out),
            (rows, out) if scaled => many_rows::<F, S, scaled::Columns<S>>(s, self.group, rows, out),
            (rows, out) => many_rows::<F, S, WeightSlice<S>>(s, self.group, rows, out),
        }
    }
}

#[inline(always)]
fn one_row<F: Quantised, S: Simd>(s: S, group: &[u8], row: &[Int8Block], out: &mut Lanes) {
    let slices = F::BLOCK / 32;
    let mut sums = [s.splat(0.0)];
    for (tile, blocks) in group.chunks_exact(ROWS * F::BYTES).zip(row.chunks_exact(slices)) {
        for (g, block) in blocks.iter().enumerate() {
            if F::GROUP == 16 || s.prefetches() {
                prefetch_slice(s, tile, g, slices);
            }
            add_products::<F, S, 1>(s, &mut sums, &WeightSlice::unpack::<F>(s, tile, g), [block]);
        }
    }
    s.store_f32(sums[0], out, 0);
}

#[inline(always)]
fn many_rows<F: Quantised, S: Simd, C: Slice<S>>(s: S, group: &[u8], rows: &[&[Int8Block]], out: &mut [Lanes]) {
    const { assert!(PANEL.is_multiple_of(F::BLOCK / 32), "a panel is whole tiles") }
    let slices = F::BLOCK / 32;
    let mut panel = [C::zero(s); PANEL];
    out.fill([0.0; ROWS]);
    for (i, tiles) in group.chunks(PANEL / slices * ROWS * F::BYTES).enumerate() {
        let mut len = 0;
        for (tile, columns) in tiles.chunks_exact(ROWS * F::BYTES).zip(panel.chunks_exact_mut(slices)) {
            for (g, columns) in columns.iter_mut().enumerate() {
                *columns = C::unpack::<F>(s, tile, g);
            }
            len += slices;
        }
        let panel = Panel { slices: &panel[..len], start: PANEL * i, tiles };
        panel.multiply::<F, S>(s, rows, out);
    }
}

/// Unpacked columns, of which the first is `32 * start`.
struct Panel<'a, C> {
    slices: &'a [C],
    start: usize,
    /// Its bytes; those of the next panel follow.
    tiles: &'a [u8],
}

impl<C> Panel<'_, C> {
    /// out += products of the panel with all rows.
    #[inline(always)]
    fn multiply<F: Quantised, S: Simd>(&self, s: S, rows: &[&[Int8Block]], out: &mut [Lanes])
    where
        C: Slice<S>,
    {
        let (mut first, mut line) = (0, 0);
        let lines = self.tiles.len().div_ceil(64);
        let lines_per_row = lines.div_ceil(rows.len().max(1));
        while first < rows.len() {
            let left = rows.len() - first;
            // A share of the next panel, which begins on another page, where the hardware's prefetcher begins anew: on
            // two cores of a Xeon, prefill of Q8_0 gains 8%, Q6_K 8%, Q4_K 3% by AVX2, by AVX-512 Q8_0 3%, Q4_K 5%.
            let end = (lines_per_row * (first + 4)).min(lines);
            while line < end {
                s.prefetch(self.tiles, self.tiles.len() + 64 * line);
                line += 1;
            }
            first += if S::INT8_ROWS >= 8 && left >= 8 {
                self.add::<F, S, 8>(s, &rows[first..], &mut out[first..])
            } else if S::INT8_ROWS >= 4 && left >= 4 {
                self.add::<F, S, 4>(s, &rows[first..], &mut out[first..])
            } else if left >= 2 {
                self.add::<F, S, 2>(s, &rows[first..], &mut out[first..])
            } else {
                self.add::<F, S, 1>(s, &rows[first..], &mut out[first..])
            };
        }
    }

    /// The same for the first `N` rows. Returns `N`.
    #[inline(always)]
    fn add<F: Quantised, S: Simd, const N: usize>(&self, s: S, rows: &[&[Int8Block]], out: &mut [Lanes]) -> usize
    where
        C: Slice<S>,
    {
        // One length for all rows, so that the inner loop has no bounds checks.
        let rows: [&[Int8Block]; N] = from_fn(|t| &rows[t][self.start..self.start + self.slices.len()]);
        C::multiply::<F, N>(s, self.slices, rows, &mut out[..N]);
        N
    }
}

/// The codes of slice `g` as the level's dot products read them.
#[inline(always)]
fn codes<F: Quantised, S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8] {
    let codes = F::codes(s, tile, g);
    if F::SIGNED { eight!(j => s.signed_codes(codes[j])) } else { codes }
}

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
    fn multiply<F: Quantised, const N: usize>(s: S, slices: &[Self], rows: [&[Int8Block]; N], out: &mut [Lanes]) {
        if let (32, Ok(rows), Ok(out)) = (F::GROUP, rows[..].try_into(), (&mut *out).try_into())
            && s.multiply_eight(slices, rows, -bias::<F, S>(), F::HAS_MIN, out)
        {
            return;
        }
        let mut sums = [s.splat(0.0); N];
        for t in 0..N {
            sums[t] = s.load_f32(&out[t], 0);
        }
        for (i, columns) in slices.iter().enumerate() {
            add_products::<F, S, N>(s, &mut sums, columns, rows.map(|row| &row[i]));
        }
        for t in 0..N {
            s.store_f32(sums[t], &mut out[t], 0);
        }
    }
}

/// Prefetch distance in bytes for formats with groups of 16: about two tiles. With few activation rows, a group of 32
/// columns reads its bytes in bursts, because one byte holds columns of several groups, and the hardware prefetcher
/// falls behind: Q6_K reads 28.5 instead of 21.5 GB/s of 40 (two Zen 4 cores), Q3_K 31 instead of 28; 4,096 bytes do
/// the same, 2,048 less. Formats whose tile is read more evenly (Q4_K) become slower there, where [`Simd::prefetches`] is
/// false.
const AHEAD: usize = 8192;

/// Prefetches the `g`-th of `slices` equal slices of the tile [`AHEAD`] bytes on.
#[inline(always)]
fn prefetch_slice<S: Simd>(s: S, tile: &[u8], g: usize, slices: usize) {
    let len = tile.len() / slices;
    for line in 0..len.div_ceil(64) {
        s.prefetch(tile, AHEAD + g * len + 64 * line);
    }
}

/// sums += Σ over 32 columns of weight · activation, for `N` rows of activations.
#[inline(always)]
fn add_products<F: Quantised, S: Simd, const N: usize>(
    s: S,
    sums: &mut [S::F32; N],
    columns: &WeightSlice<S>,
    x: [&Int8Block; N],
) {
    let WeightSlice { codes, scales } = columns;
    if F::GROUP == 32 {
        let d = dot_codes::<F, S, N, 8>(s, codes, x, 0);
        for t in 0..N {
            let x = x[t];
            sums[t] = s.mul_add(s.to_f32(d[t]), s.mul(scales[0].scale, s.splat(x.scale)), sums[t]);
            if F::HAS_MIN {
                sums[t] = s.mul_add(scales[0].min, s.splat(-x.sum), sums[t]);
            }
        }
    } else {
        let first = dot_codes::<F, S, N, 4>(s, &codes.as_chunks().0[0], x, 0);
        let second = dot_codes::<F, S, N, 4>(s, &codes.as_chunks().0[1], x, 1);
        for t in 0..N {
            let x = x[t];
            let product = s.mul(s.to_f32(first[t]), scales[0].scale);
            let product = s.mul_add(s.to_f32(second[t]), scales[1].scale, product);
            sums[t] = s.mul_add(product, s.splat(x.scale), sums[t]);
            if F::HAS_MIN {
                sums[t] = s.mul_add(scales[0].min, s.splat(-x.scaled_half_sums[0]), sums[t]);
                sums[t] = s.mul_add(scales[1].min, s.splat(-x.scaled_half_sums[1]), sums[t]);
            }
        }
    }
}

/// The excess of a format's codes over their values, at a level.
#[inline(always)]
fn bias<F: Quantised, S: Simd>() -> i32 {
    F::ZERO + if F::SIGNED { S::SIGNED_BIAS } else { 0 }
}

/// Σ of (code − bias) · x over `4 · J` columns, which are all 32, or `half` of them.
#[inline(always)]
fn dot_codes<F: Quantised, S: Simd, const N: usize, const J: usize>(
    s: S,
    codes: &[S::Codes; J],
    x: [&Int8Block; N],
    half: usize,
) -> [S::I32; N] {
    let (bias, q) = (-bias::<F, S>(), x.map(|x| &x.q.as_chunks().0[half]));
    // The codes' bias is subtracted as an integer, before any rounding.
    if !S::FAST_PAIRS {
        let start = x.map(|x| bias * if J == 8 { x.half_sums[0] + x.half_sums[1] } else { x.half_sums[half] });
        return s.dots::<N, J>(F::SIGNED, F::PAIR_SUMS, start, codes, q);
    }
    let mut sums = [s.splat_i32(0); N];
    if bias != 0 {
        let low = bias & 0xffff;
        let pair = s.splat_i32(if J == 8 { low | low << 16 } else { low << (16 * half) });
        for t in 0..N {
            sums[t] = s.dot_pairs(sums[t], pair, x[t].half_sum_pair);
        }
    }
    for j in 0..J {
        for t in 0..N {
            let x = q[t][j];
            sums[t] = if F::SIGNED { s.dot_signed(sums[t], codes[j], x) } else { s.dot(sums[t], codes[j], x) };
        }
    }
    sums
}

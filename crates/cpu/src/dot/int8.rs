//! Quantised weights times int8 activations.
//!
//! Several activation rows share a *panel*: at most 256 columns of the 16 weight rows, unpacked once into the L1 cache.
//! A pass over the panel multiplies [`Simd::INT8_ROWS`] rows, with integer sums in registers. A single row multiplies
//! the columns as they are unpacked. Both paths add the same products in the same order.
//!
//! Only unpacking is compiled per format. Unpacked codes of all formats differ only in the properties that [`Encoding`]
//! states.

mod scaled;

use super::super::act::Int8Block;
use super::super::layout::ROWS;
use super::Lanes;
use gristmill_kernels::eight;
use gristmill_kernels::format::{Quantised, Scale};
use gristmill_kernels::simd::{Kernel, LevelKernel, Simd, WeightSlice};
use std::array::from_fn;
use std::marker::PhantomData;

/// A row group times all activation rows.
pub(super) struct Int8Dot<'a, F> {
    pub(super) group: &'a [u8],
    pub(super) rows: &'a [&'a [Int8Block]],
    pub(super) out: &'a mut [Lanes],
    pub(super) format: PhantomData<F>,
}

/// The properties of unpacked codes that a product needs: properties of [`Quantised`] as values.
#[derive(Clone, Copy)]
pub(super) struct Encoding {
    /// Columns that share a scale, 16 or 32.
    group: usize,
    pub(super) signed: bool,
    pair_sums: usize,
    zero: i32,
    pub(super) has_min: bool,
}

impl Encoding {
    #[inline(always)]
    pub(super) const fn of<F: Quantised>() -> Self {
        const { assert!(F::GROUP == 16 && !F::SIGNED || F::GROUP == 32, "`many_rows` has a kernel for it") }
        Self { group: F::GROUP, signed: F::SIGNED, pair_sums: F::PAIR_SUMS, zero: F::ZERO, has_min: F::HAS_MIN }
    }

    /// The excess of codes over their values, at a level.
    #[inline(always)]
    pub(super) fn bias<S: Simd>(self) -> i32 {
        self.zero + if self.signed { S::SIGNED_BIAS } else { 0 }
    }
}

/// 32 columns of 16 weight rows, unpacked.
pub(super) trait Slice<S: Simd>: Copy {
    /// A slice of zeros.
    fn zero(s: S) -> Self;
    /// Slice `g` of a tile.
    fn unpack<F: Quantised>(s: S, tile: &[u8], g: usize) -> Self;
    /// out += products of the slices with `N` rows of as many blocks.
    fn multiply<const N: usize>(s: S, e: Encoding, slices: &[Self], rows: [&[Int8Block]; N], out: &mut [Lanes]);
}

/// The maximum number of 32-column slices in a panel.
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
            add_products(s, Encoding::of::<F>(), &mut sums, &WeightSlice::unpack::<F>(s, tile, g), [block]);
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
        let panel = &mut panel[..tiles.len() / (ROWS * F::BYTES) * slices];
        s.run(Unpack { group: tiles, first: 0, panel: &mut *panel, format: PhantomData::<F> });
        let panel = Panel { slices: panel, start: PANEL * i, tiles, rows, out, encoding: Encoding::of::<F>() };
        match (F::GROUP, F::SIGNED) {
            (16, _) => s.run(PanelProducts::<C, 16, false>(panel)),
            (_, false) => s.run(PanelProducts::<C, 32, false>(panel)),
            (_, true) => s.run(PanelProducts::<C, 32, true>(panel)),
        }
    }
}

/// Unpacks enough slices of a row group to fill `panel`, from slice `first` on. One kernel per format, shared by
/// products with int8 and with f32.
pub(super) struct Unpack<'a, F, C> {
    pub(super) group: &'a [u8],
    pub(super) first: usize,
    pub(super) panel: &'a mut [C],
    pub(super) format: PhantomData<F>,
}

impl<F: Quantised, S: Simd, C: Slice<S>> LevelKernel<S> for Unpack<'_, F, C> {
    type Output = ();

    #[inline(always)]
    fn run_at(self, s: S) {
        let slices = F::BLOCK / 32;
        for (i, columns) in self.panel.iter_mut().enumerate() {
            let (tile, g) = ((self.first + i) / slices, (self.first + i) % slices);
            *columns = C::unpack::<F>(s, &self.group[tile * ROWS * F::BYTES..][..ROWS * F::BYTES], g);
        }
    }
}

/// Unpacked columns that start at column `32 * start`, and the rows to multiply with.
struct Panel<'a, C> {
    slices: &'a [C],
    start: usize,
    /// The panel's bytes; the next panel's bytes follow.
    tiles: &'a [u8],
    rows: &'a [&'a [Int8Block]],
    out: &'a mut [Lanes],
    encoding: Encoding,
}

/// out += products of the panel with all rows: one kernel for all formats with the same groups and codes. The
/// properties that select instructions are type parameters; the rest of [`Encoding`] is a value.
struct PanelProducts<'a, C, const GROUP: usize, const SIGNED: bool>(Panel<'a, C>);

impl<S: Simd, C: Slice<S>, const GROUP: usize, const SIGNED: bool> LevelKernel<S>
    for PanelProducts<'_, C, GROUP, SIGNED>
{
    type Output = ();

    #[inline(always)]
    fn run_at(self, s: S) {
        let mut panel = self.0;
        panel.encoding = Encoding { group: GROUP, signed: SIGNED, ..panel.encoding };
        panel.multiply(s);
    }
}

impl<C> Panel<'_, C> {
    #[inline(always)]
    fn multiply<S: Simd>(&mut self, s: S)
    where
        C: Slice<S>,
    {
        let (mut first, mut line) = (0, 0);
        let lines = self.tiles.len().div_ceil(64);
        let lines_per_row = lines.div_ceil(self.rows.len().max(1));
        while first < self.rows.len() {
            let left = self.rows.len() - first;
            // A share of the next panel, which begins on another page, where the hardware's prefetcher begins anew: on
            // two cores of a Xeon, prefill of Q8_0 gains 8%, Q6_K 8%, Q4_K 3% by AVX2, by AVX-512 Q8_0 3%, Q4_K 5%.
            let end = (lines_per_row * (first + 4)).min(lines);
            while line < end {
                s.prefetch(self.tiles, self.tiles.len() + 64 * line);
                line += 1;
            }
            first += if S::INT8_ROWS >= 8 && left >= 8 {
                self.add::<S, 8>(s, first)
            } else if S::INT8_ROWS >= 4 && left >= 4 {
                self.add::<S, 4>(s, first)
            } else if left >= 2 {
                self.add::<S, 2>(s, first)
            } else {
                self.add::<S, 1>(s, first)
            };
        }
    }

    /// The same for `N` rows from row `first` on. Returns `N`.
    #[inline(always)]
    fn add<S: Simd, const N: usize>(&mut self, s: S, first: usize) -> usize
    where
        C: Slice<S>,
    {
        // All rows have the same length, so the inner loop has no bounds checks.
        let rows = &self.rows[first..][..N];
        let rows: [&[Int8Block]; N] = from_fn(|t| &rows[t][self.start..self.start + self.slices.len()]);
        C::multiply::<N>(s, self.encoding, self.slices, rows, &mut self.out[first..][..N]);
        N
    }
}

/// The codes of slice `g` in the layout that the level's dot products read.
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
    fn multiply<const N: usize>(s: S, e: Encoding, slices: &[Self], rows: [&[Int8Block]; N], out: &mut [Lanes]) {
        if let (32, Ok(rows), Ok(out)) = (e.group, rows[..].try_into(), (&mut *out).try_into())
            && s.multiply_eight(slices, rows, -e.bias::<S>(), e.has_min, out)
        {
            return;
        }
        let mut sums = [s.splat(0.0); N];
        for t in 0..N {
            sums[t] = s.load_f32(&out[t], 0);
        }
        for (i, columns) in slices.iter().enumerate() {
            add_products(s, e, &mut sums, columns, rows.map(|row| &row[i]));
        }
        for t in 0..N {
            s.store_f32(sums[t], &mut out[t], 0);
        }
    }
}

/// Prefetch distance in bytes for formats with groups of 16: about two tiles. With few activation rows, a group of 32
/// columns reads its bytes in bursts, because one byte holds columns of several groups. The hardware prefetcher falls
/// behind. On two Zen 4 cores with 40 GB/s, Q6_K reads 28.5 instead of 21.5 GB/s, and Q3_K 31 instead of 28. A distance
/// of 4,096 bytes has equal effect; 2,048 has less. Formats whose tile is read more evenly (Q4_K) become slower there,
/// where [`Simd::prefetches`] is false.
const AHEAD: usize = 8192;

/// Prefetches the `g`-th of `slices` equal slices of the tile at distance [`AHEAD`] bytes.
#[inline(always)]
fn prefetch_slice<S: Simd>(s: S, tile: &[u8], g: usize, slices: usize) {
    let len = tile.len() / slices;
    for line in 0..len.div_ceil(64) {
        s.prefetch(tile, AHEAD + g * len + 64 * line);
    }
}

/// sums += Σ over 32 columns of weight · activation, for `N` rows of activations.
#[inline(always)]
fn add_products<S: Simd, const N: usize>(
    s: S,
    e: Encoding,
    sums: &mut [S::F32; N],
    columns: &WeightSlice<S>,
    x: [&Int8Block; N],
) {
    let WeightSlice { codes, scales } = columns;
    if e.group == 32 {
        let d = dot_codes::<S, N, 8>(s, e, codes, x, 0);
        for t in 0..N {
            let x = x[t];
            sums[t] = s.mul_add(s.to_f32(d[t]), s.mul(scales[0].scale, s.splat(x.scale)), sums[t]);
            if e.has_min {
                sums[t] = s.mul_add(scales[0].min, s.splat(-x.sum), sums[t]);
            }
        }
    } else {
        let first = dot_codes::<S, N, 4>(s, e, &codes.as_chunks().0[0], x, 0);
        let second = dot_codes::<S, N, 4>(s, e, &codes.as_chunks().0[1], x, 1);
        for t in 0..N {
            let x = x[t];
            let product = s.mul(s.to_f32(first[t]), scales[0].scale);
            let product = s.mul_add(s.to_f32(second[t]), scales[1].scale, product);
            sums[t] = s.mul_add(product, s.splat(x.scale), sums[t]);
            if e.has_min {
                sums[t] = s.mul_add(scales[0].min, s.splat(-x.scaled_half_sums[0]), sums[t]);
                sums[t] = s.mul_add(scales[1].min, s.splat(-x.scaled_half_sums[1]), sums[t]);
            }
        }
    }
}

/// Σ of (code − bias) · x over `4 · J` columns: all 32 columns, or one `half` of them.
#[inline(always)]
fn dot_codes<S: Simd, const N: usize, const J: usize>(
    s: S,
    e: Encoding,
    codes: &[S::Codes; J],
    x: [&Int8Block; N],
    half: usize,
) -> [S::I32; N] {
    let (bias, q) = (-e.bias::<S>(), x.map(|x| &x.q.as_chunks().0[half]));
    // The codes' bias is subtracted as an integer, before any rounding.
    if !S::FAST_PAIRS {
        let start = x.map(|x| bias * if J == 8 { x.half_sums[0] + x.half_sums[1] } else { x.half_sums[half] });
        return s.dots::<N, J>(e.signed, e.pair_sums, start, codes, q);
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
            sums[t] = if e.signed { s.dot_signed(sums[t], codes[j], x) } else { s.dot(sums[t], codes[j], x) };
        }
    }
    sums
}

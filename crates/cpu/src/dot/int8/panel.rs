//! Several rows times a panel of unpacked columns.
//!
//! [`Simd::INT8_ROWS`] rows at a time pass over the panel, with integer sums in registers. The products are a kernel of
//! their own, one for each class of formats.

use super::super::super::act::Int8Block;
use super::super::super::layout::{Lanes, ROWS};
use super::class::{Class, OfFormat, Shared};
use super::scaled;
use super::slice::Slice;
use gristmill_kernels::format::Quantised;
use gristmill_kernels::simd::{Kernel, Simd, WeightSlice};
use std::any::Any;
use std::array::from_fn;
use std::marker::PhantomData;

/// How a panel keeps the scales of its columns.
pub(super) trait Scales {
    type Columns<S: Simd>: Slice<S>;
}

/// As floats.
pub(super) struct FloatScales;

impl Scales for FloatScales {
    type Columns<S: Simd> = WeightSlice<S>;
}

/// As integers, with one unit for each block.
pub(super) struct IntegerScales;

impl Scales for IntegerScales {
    type Columns<S: Simd> = scaled::Columns<S>;
}

/// The most slices of 32 columns in a panel.
const PANEL: usize = 8;

/// out = the 16 weight rows of `group` · each row.
#[inline(always)]
pub(super) fn many_rows<F: Quantised, S: Simd, L: Scales>(
    s: S,
    group: &[u8],
    rows: &[&[Int8Block]],
    out: &mut [Lanes],
) {
    const { assert!(PANEL.is_multiple_of(F::BLOCK / 32), "a panel is whole tiles") }
    let slices = F::BLOCK / 32;
    let mut panel = [L::Columns::<S>::zero(s); PANEL];
    out.fill([0.0; ROWS]);
    for (i, tiles) in group.chunks(PANEL / slices * ROWS * F::BYTES).enumerate() {
        let mut len = 0;
        for (tile, columns) in tiles.chunks_exact(ROWS * F::BYTES).zip(panel.chunks_exact_mut(slices)) {
            for (g, columns) in columns.iter_mut().enumerate() {
                *columns = L::Columns::<S>::unpack::<F>(s, tile, g);
            }
            len += slices;
        }
        Panel { slices: &panel, len, start: PANEL * i, tiles, zero: F::ZERO, rows, out }.multiply::<F, S, L>(s);
    }
}

/// Unpacked columns, of which the first is `32 * start`, and what they are multiplied with.
struct Panel<'a> {
    /// [`PANEL`] slices of the level that unpacked them, whose type a kernel cannot name.
    slices: &'a dyn Any,
    /// How many of the slices have columns.
    len: usize,
    start: usize,
    /// Its bytes; those of the next panel follow.
    tiles: &'a [u8],
    /// Subtracted from each code.
    zero: i32,
    rows: &'a [&'a [Int8Block]],
    out: &'a mut [Lanes],
}

/// Runs the products of the listed class that a format has, if `$is` holds.
macro_rules! of_class {
    (if $is:expr, $s:ident, $panel:ident, $L:ident, $K:ty; $([$group:literal, $sums:literal, $signed:literal, $min:literal])*) => {
        const {
            let class = (<$K>::GROUP, <$K>::PAIR_SUMS, <$K>::SIGNED, <$K>::HAS_MIN);
            assert!(!$is || matches!(class, $(($group, $sums, $signed, $min))|*), "the list lacks a class");
            let has_zero = <$K>::SIGNED == <$K>::HAS_MIN;
            assert!(<$K>::HAS_ZERO == has_zero, "a class tells whether codes have a zero");
        }
        if $is {
            return match (<$K>::GROUP, <$K>::PAIR_SUMS, <$K>::SIGNED, <$K>::HAS_MIN) {
                $(($group, $sums, $signed, $min) => {
                    $s.run(Products::<Shared<$group, $sums, $signed, $min>, $L>($panel, PhantomData))
                })*
                _ => {}
            };
        }
    };
}

impl Panel<'_> {
    /// out += products of the panel with all rows.
    #[inline(always)]
    fn multiply<F: Quantised, S: Simd, L: Scales>(self, s: S) {
        of_class! { if !S::INTEGER_SCALES, s, self, L, OfFormat<F, false>;
            [16, 1, false, false] [16, 1, false, true] [16, 1, true, false]
            [32, 1, false, false] [32, 1, false, true] [32, 1, true, false] [32, 1, true, true]
        }
        of_class! { if S::INTEGER_SCALES && !F::INTEGER_SCALES, s, self, L, OfFormat<F, true>;
            [16, 4, false, false]
            [32, 4, false, false] [32, 8, false, false] [32, 4, false, true] [32, 8, false, true]
            [32, 1, true, false] [32, 1, true, true]
        }
        of_class! { if S::INTEGER_SCALES && F::INTEGER_SCALES, s, self, L, OfFormat<F, true>;
            [16, 1, false, false] [16, 2, false, false] [16, 4, false, false] [16, 4, false, true] [16, 1, true, false]
            [32, 1, false, false] [32, 4, false, false] [32, 8, false, false] [32, 4, false, true] [32, 8, false, true]
            [32, 1, true, false]
        }
    }
}

/// The products of a class of formats with a panel.
struct Products<'a, K, L>(Panel<'a>, PhantomData<(K, L)>);

impl<K: Class, L: Scales> Kernel for Products<'_, K, L> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Panel { slices, len, start, tiles, zero, rows, out } = self.0;
        let slices: &[L::Columns<S>; PANEL] = slices.downcast_ref().expect("the level that unpacked multiplies");
        let slices = &slices[..len];
        let mut first = 0;
        let mut line = 0;
        let lines = tiles.len().div_ceil(64);
        let lines_per_row = lines.div_ceil(rows.len().max(1));
        while first < rows.len() {
            let left = rows.len() - first;
            // A share of the next panel, which begins on another page, where the hardware's prefetcher begins anew: on
            // two cores of a Xeon, prefill of Q8_0 gains 8%, Q6_K 8%, Q4_K 3% by AVX2, by AVX-512 Q8_0 3%, Q4_K 5%.
            let end = (lines_per_row * (first + 4)).min(lines);
            while line < end {
                s.prefetch(tiles, tiles.len() + 64 * line);
                line += 1;
            }
            let (rows, out) = (&rows[first..], &mut out[first..]);
            first += if S::INT8_ROWS >= 8 && left >= 8 {
                add::<K, S, L::Columns<S>, 8>(s, slices, start, zero, rows, out)
            } else if S::INT8_ROWS >= 4 && left >= 4 {
                add::<K, S, L::Columns<S>, 4>(s, slices, start, zero, rows, out)
            } else if left >= 2 {
                add::<K, S, L::Columns<S>, 2>(s, slices, start, zero, rows, out)
            } else {
                add::<K, S, L::Columns<S>, 1>(s, slices, start, zero, rows, out)
            };
        }
    }
}

/// out += products of the slices, from slice `start` on, with the first `N` rows. Returns `N`.
#[inline(always)]
fn add<K: Class, S: Simd, C: Slice<S>, const N: usize>(
    s: S,
    slices: &[C],
    start: usize,
    zero: i32,
    rows: &[&[Int8Block]],
    out: &mut [Lanes],
) -> usize {
    // One length for all rows, so that the inner loop has no bounds checks.
    let rows: [&[Int8Block]; N] = from_fn(|t| &rows[t][start..start + slices.len()]);
    C::multiply::<K, N>(s, slices, zero, rows, &mut out[..N]);
    N
}

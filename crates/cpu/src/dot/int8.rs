//! Quantised weights times activations in int8.
//!
//! Several rows share a *panel*: up to 256 columns of the 16 weight rows, unpacked once into the L1 cache for all of
//! them (`int8/panel.rs`). A single row multiplies the columns as they are unpacked. Both add up the same products in the
//! same order.

mod class;
mod panel;
mod product;
mod scaled;
mod slice;

use super::super::act::Int8Block;
use super::super::layout::{Lanes, ROWS};
use class::OfFormat;
use gristmill_kernels::format::Quantised;
use gristmill_kernels::simd::{Kernel, Simd, WeightSlice};
use panel::{FloatScales, IntegerScales, many_rows};
use product::add_products;
use slice::{codes, prefetch_slice};
use std::marker::PhantomData;

/// A row group times all activation rows.
pub(super) struct Int8Dot<'a, F> {
    pub(super) group: &'a [u8],
    pub(super) rows: &'a [&'a [Int8Block]],
    pub(super) out: &'a mut [Lanes],
    pub(super) format: PhantomData<F>,
}

impl<F: Quantised> Kernel for Int8Dot<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if const { S::INTEGER_SCALES && F::INTEGER_SCALES } {
            match (self.rows, &mut *self.out) {
                ([row], [out]) => scaled::one_row::<F, S>(s, self.group, row, out),
                (rows, out) => many_rows::<F, S, IntegerScales>(s, self.group, rows, out),
            }
        } else {
            match (self.rows, &mut *self.out) {
                ([row], [out]) => one_row::<F, S>(s, self.group, row, out),
                (rows, out) => many_rows::<F, S, FloatScales>(s, self.group, rows, out),
            }
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
            let columns = WeightSlice { codes: codes::<F, S>(s, tile, g), scales: F::scales(s, tile, g) };
            add_products::<OfFormat<F, true>, S, 1>(s, &mut sums, &columns, F::ZERO, [block]);
        }
    }
    s.store_f32(sums[0], out, 0);
}

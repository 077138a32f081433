//! Products of 16 weight rows with activations that are floats: f32, or pairs of bfloat16.
//!
//! A *panel* is up to 64 steps (columns, or pairs of them) of the 16 weight rows, unpacked once into the L1 cache for
//! all activation rows. Each half of a panel has sums of its own, because a single sum would wait for the latency of
//! every addition: few rows add to both at once; as many rows as the registers hold sums, to one after the other. So
//! the order of a sum does not depend on the number of rows.

use super::super::cuts::TOKEN_BLOCK;
use super::super::layout::{Lanes, ROWS};
use super::pair::{self, PairSums};
use gristmill_kernels::format::{Float, Quantised};
use gristmill_kernels::simd::{Kernel, Simd};
use std::array::from_fn;
use std::marker::PhantomData;

/// Steps that share a sum within a panel.
pub(super) const HALF: usize = 32;

/// Bytes between a column that is unpacked and the one that is asked for meanwhile: the hardware's prefetcher stops while
/// a panel is multiplied. One row of BF16 on two Zen 3 cores, as a program of its own: 16 → 20 GB/s.
const AHEAD: usize = 8 << 10;

/// How the unpacked weights of a step are multiplied.
pub(super) trait Product {
    /// The element of an activation row for a step.
    type Element: Copy;
    /// The unpacked weights of 16 rows for a step.
    type Weights<S: Simd>: Copy;
    /// Proof of the CPU's features that [`Product::add`] needs.
    type Proof<S: Simd>: Copy;

    /// sum + weights · activations of a step.
    fn add<S: Simd>(s: S, proof: Self::Proof<S>, sum: S::F32, weights: &Self::Weights<S>, x: Self::Element) -> S::F32;
}

/// How a row group is unpacked, step by step.
pub(super) trait Steps {
    /// How it is multiplied.
    type Product: Product;

    /// The proof, on a CPU whose callers may run this.
    fn proof<S: Simd>(s: S) -> Proof<Self, S>;
    /// Any weights.
    fn zero<S: Simd>(s: S) -> Weights<Self, S>;
    /// Steps of a row group.
    fn count(group: &[u8]) -> usize;
    /// Unpacks as many steps as `panel` holds, from `first` on, a multiple of 64.
    fn unpack<S: Simd>(s: S, group: &[u8], first: usize, panel: &mut [Weights<Self, S>]);
    /// sums += products of a panel, whose first step is `first`, with all rows.
    fn multiply<S: Simd>(
        s: S,
        proof: Proof<Self, S>,
        panel: &[Weights<Self, S>],
        rows: &[&[Element<Self>]],
        first: usize,
        sums: &mut [[Lanes; 2]],
    );
    /// The same for the panels of two row groups and packed rows. `rows` has the elements of each half.
    fn multiply_pair<S: Simd>(
        s: S,
        proof: Proof<Self, S>,
        panels: [&[Weights<Self, S>]; 2],
        rows: [&[[Element<Self>; HALF]]; 2],
        sums: &mut PairSums,
    );
}

pub(super) type Element<K> = <<K as Steps>::Product as Product>::Element;
pub(super) type Weights<K, S> = <<K as Steps>::Product as Product>::Weights<S>;
pub(super) type Proof<K, S> = <<K as Steps>::Product as Product>::Proof<S>;

/// A row group times all activation rows.
pub(super) struct FloatDot<'a, K: Steps> {
    pub(super) group: &'a [u8],
    pub(super) rows: &'a [&'a [Element<K>]],
    pub(super) out: &'a mut [Lanes],
}

impl<K: Steps> Kernel for FloatDot<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let steps = K::count(self.group);
        let proof = K::proof(s);
        let mut panel = [K::zero(s); 2 * HALF];
        for (rows, out) in self.rows.chunks(TOKEN_BLOCK).zip(self.out.chunks_mut(TOKEN_BLOCK)) {
            let mut sums = [[[0.0; ROWS]; 2]; TOKEN_BLOCK];
            for first in (0..steps).step_by(2 * HALF) {
                let panel = &mut panel[..(2 * HALF).min(steps - first)];
                K::unpack(s, self.group, first, panel);
                K::multiply(s, proof, panel, rows, first, &mut sums);
            }
            for (out, sums) in out.iter_mut().zip(&sums) {
                s.store_f32(s.add(s.load_f32(&sums[0], 0), s.load_f32(&sums[1], 0)), out, 0);
            }
        }
    }
}

/// sums += products of a panel, whose first step is `first`, with all rows.
#[inline(always)]
fn multiply<P: Product, S: Simd>(
    s: S,
    proof: P::Proof<S>,
    panel: &[P::Weights<S>],
    rows: &[&[P::Element]],
    first: usize,
    sums: &mut [[Lanes; 2]],
) {
    let (low, high) = panel.split_at(panel.len().min(HALF));
    let mut row = 0;
    while row < rows.len() {
        let rows = &rows[row..];
        let sums = &mut sums[row..];
        row += if const { S::TOKENS >= 16 } && rows.len() >= 16 {
            add::<P, S, 16>(s, proof, low, rows, first, sums, 0);
            add::<P, S, 16>(s, proof, high, rows, first + low.len(), sums, 1)
        } else if const { S::TOKENS >= 16 } && rows.len() >= 8 {
            add_both::<P, S, 8>(s, proof, [low, high], rows, first, sums)
        } else if const { S::TOKENS >= 6 } && rows.len() >= 6 {
            add::<P, S, 6>(s, proof, low, rows, first, sums, 0);
            add::<P, S, 6>(s, proof, high, rows, first + low.len(), sums, 1)
        } else if rows.len() >= 4 {
            add::<P, S, 4>(s, proof, low, rows, first, sums, 0);
            add::<P, S, 4>(s, proof, high, rows, first + low.len(), sums, 1)
        } else if rows.len() >= 2 {
            add_both::<P, S, 2>(s, proof, [low, high], rows, first, sums)
        } else {
            add_both::<P, S, 1>(s, proof, [low, high], rows, first, sums)
        };
    }
}

/// One of the sums of each of the first `N` rows += products of the steps from `first` on. Returns `N`.
#[inline(always)]
fn add<P: Product, S: Simd, const N: usize>(
    s: S,
    proof: P::Proof<S>,
    steps: &[P::Weights<S>],
    rows: &[&[P::Element]],
    first: usize,
    sums: &mut [[Lanes; 2]],
    half: usize,
) -> usize {
    // One length for all rows, so that the loop has no bounds checks.
    let rows: [&[P::Element]; N] = from_fn(|t| &rows[t][first..first + steps.len()]);
    let mut kept = [s.splat(0.0); N];
    for t in 0..N {
        kept[t] = s.load_f32(&sums[t][half], 0);
    }
    for (k, weights) in steps.iter().enumerate() {
        for t in 0..N {
            kept[t] = P::add(s, proof, kept[t], weights, rows[t][k]);
        }
    }
    for t in 0..N {
        s.store_f32(kept[t], &mut sums[t][half], 0);
    }
    N
}

/// [`add`] for both sums at once.
#[inline(always)]
fn add_both<P: Product, S: Simd, const N: usize>(
    s: S,
    proof: P::Proof<S>,
    [low, high]: [&[P::Weights<S>]; 2],
    rows: &[&[P::Element]],
    first: usize,
    sums: &mut [[Lanes; 2]],
) -> usize {
    let both = high.len();
    let x: [[&[P::Element]; 2]; N] = from_fn(|t| {
        let (a, b) = rows[t][first..first + low.len() + both].split_at(low.len());
        [&a[..both], b]
    });
    let mut kept = [[s.splat(0.0); 2]; N];
    for t in 0..N {
        for half in 0..2 {
            kept[t][half] = s.load_f32(&sums[t][half], 0);
        }
    }
    for (k, (a, b)) in low[..both].iter().zip(high).enumerate() {
        for t in 0..N {
            kept[t][0] = P::add(s, proof, kept[t][0], a, x[t][0][k]);
            kept[t][1] = P::add(s, proof, kept[t][1], b, x[t][1][k]);
        }
    }
    for t in 0..N {
        for half in 0..2 {
            s.store_f32(kept[t][half], &mut sums[t][half], 0);
        }
    }
    // The last panel may have a shorter second half, or none.
    add::<P, S, N>(s, proof, &low[both..], rows, first + both, sums, 0)
}

/// A column of 16 weight rows in f32, one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Column(Lanes);

/// Columns in f32 with f32 activations.
pub(super) struct ColumnProduct;

impl Product for ColumnProduct {
    type Element = f32;
    type Weights<S: Simd> = Column;
    type Proof<S: Simd> = ();

    #[inline(always)]
    fn add<S: Simd>(s: S, (): (), sum: S::F32, weights: &Column, x: f32) -> S::F32 {
        s.mul_add(s.load_f32(&weights.0, 0), s.splat(x), sum)
    }
}

/// The products of a panel of columns: one kernel for all formats, compiled once for each level.
struct Columns<'a> {
    panel: &'a [Column],
    rows: &'a [&'a [f32]],
    first: usize,
    sums: &'a mut [[Lanes; 2]],
}

impl Kernel for Columns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        multiply::<ColumnProduct, S>(s, (), self.panel, self.rows, self.first, self.sums);
    }
}

/// The same for two panels and packed rows.
struct PairColumns<'a> {
    panels: [&'a [Column]; 2],
    rows: [&'a [[f32; HALF]]; 2],
    sums: &'a mut PairSums,
}

impl Kernel for PairColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        pair::multiply::<ColumnProduct, S>(s, (), self.panels, self.rows, self.sums);
    }
}

/// The methods of [`Steps`] that formats with columns in f32 have in common.
macro_rules! columns {
    () => {
        type Product = ColumnProduct;

        #[inline(always)]
        fn proof<S: Simd>(_: S) {}
        #[inline(always)]
        fn zero<S: Simd>(_: S) -> Column {
            Column([0.0; ROWS])
        }
        #[inline(always)]
        fn multiply<S: Simd>(s: S, (): (), panel: &[Column], rows: &[&[f32]], first: usize, sums: &mut [[Lanes; 2]]) {
            s.run(Columns { panel, rows, first, sums });
        }
        #[inline(always)]
        fn multiply_pair<S: Simd>(
            s: S,
            (): (),
            panels: [&[Column]; 2],
            rows: [&[[f32; HALF]]; 2],
            sums: &mut PairSums,
        ) {
            s.run(PairColumns { panels, rows, sums });
        }
    };
}

/// Columns of a float format, with f32 activations.
pub(super) struct FloatSteps<F>(PhantomData<F>);

impl<F: Float> Steps for FloatSteps<F> {
    columns!();

    #[inline(always)]
    fn count(group: &[u8]) -> usize {
        group.len() / (ROWS * F::BYTES) * F::BLOCK
    }
    #[inline(always)]
    fn unpack<S: Simd>(s: S, group: &[u8], first: usize, panel: &mut [Column]) {
        let tile = ROWS * F::BYTES;
        let group = &group[first / F::BLOCK * tile..];
        let tiles = panel.chunks_mut(F::BLOCK).zip(group.chunks_exact(tile));
        for (columns, tile) in tiles {
            for (k, weights) in columns.iter_mut().enumerate() {
                s.store_f32(F::load(s, tile, k), &mut weights.0, 0);
                // The first column of each cache line.
                let column = const { ROWS * F::BYTES / F::BLOCK };
                if k * column % 64 < column {
                    s.prefetch(&tile[k * column..], AHEAD);
                }
            }
        }
    }
}

/// Columns of a quantised format, with f32 activations ([`gristmill_kernels::act::Precision::Exact`]).
pub(super) struct ExactSteps<F>(PhantomData<F>);

impl<F: Quantised> Steps for ExactSteps<F> {
    columns!();

    #[inline(always)]
    fn count(group: &[u8]) -> usize {
        group.len() / (ROWS * F::BYTES) * F::BLOCK
    }
    #[inline(always)]
    fn unpack<S: Simd>(s: S, group: &[u8], first: usize, panel: &mut [Column]) {
        for (i, columns) in panel.chunks_exact_mut(32).enumerate() {
            let slice = first / 32 + i;
            let tile = &group[slice / (F::BLOCK / 32) * ROWS * F::BYTES..][..ROWS * F::BYTES];
            let g = slice % (F::BLOCK / 32);
            let (codes, scales) = (F::codes(s, tile, g), F::scales(s, tile, g));
            for (j, four) in columns.chunks_exact_mut(4).enumerate() {
                let scale = scales[j / 4];
                for (b, weights) in four.iter_mut().enumerate() {
                    let byte = b as u32;
                    let code = if F::SIGNED { s.byte_signed(codes[j], byte) } else { s.byte(codes[j], byte) };
                    let w = s.mul(scale.scale, s.to_f32(s.add_i32(code, s.splat_i32(-F::ZERO))));
                    s.store_f32(if F::HAS_MIN { s.sub(w, scale.min) } else { w }, &mut weights.0, 0);
                }
            }
        }
    }
}

/// Pairs of columns of bfloat16, with pairs of bfloat16: one instruction multiplies both.
pub(super) struct Bf16Steps;

impl Product for Bf16Steps {
    type Element = u32;
    type Weights<S: Simd> = S::I32;
    type Proof<S: Simd> = S::Bf16;

    #[inline(always)]
    fn add<S: Simd>(s: S, proof: S::Bf16, sum: S::F32, weights: &S::I32, x: u32) -> S::F32 {
        s.dot_bf16(proof, sum, *weights, x)
    }
}

impl Steps for Bf16Steps {
    type Product = Self;

    #[inline(always)]
    fn proof<S: Simd>(s: S) -> S::Bf16 {
        let Some(proof) = s.bf16() else { unreachable!("`dot` runs this kernel by `run_bf16` alone") };
        proof
    }
    #[inline(always)]
    fn zero<S: Simd>(s: S) -> S::I32 {
        s.splat_i32(0)
    }
    #[inline(always)]
    fn count(group: &[u8]) -> usize {
        group.len().div_ceil(PAIR)
    }
    #[inline(always)]
    fn unpack<S: Simd>(s: S, group: &[u8], first: usize, panel: &mut [S::I32]) {
        let (pairs, last) = group[first * PAIR..].as_chunks::<PAIR>();
        for (weights, pair) in panel.iter_mut().zip(pairs) {
            *weights = s.load_pairs(pair, 0);
            s.prefetch(pair, AHEAD);
        }
        if let Some(weights) = panel.get_mut(pairs.len()) {
            // The other half of each lane is zero, as it is in the row.
            *weights = s.load_u16(last, 0);
        }
    }
    #[inline(always)]
    fn multiply<S: Simd>(
        s: S,
        proof: S::Bf16,
        panel: &[S::I32],
        rows: &[&[u32]],
        first: usize,
        sums: &mut [[Lanes; 2]],
    ) {
        multiply::<Self, S>(s, proof, panel, rows, first, sums);
    }
    #[inline(always)]
    fn multiply_pair<S: Simd>(
        s: S,
        proof: S::Bf16,
        panels: [&[S::I32]; 2],
        rows: [&[[u32; HALF]]; 2],
        sums: &mut PairSums,
    ) {
        pair::multiply::<Self, S>(s, proof, panels, rows, sums);
    }
}

/// Bytes of a pair of columns of bfloat16 of a row group.
const PAIR: usize = 2 * 2 * ROWS;

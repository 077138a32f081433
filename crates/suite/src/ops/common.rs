//! What the cases of all operations use: shapes, bounds of errors and comparisons. Its imports are those of most cases.

pub(crate) use crate::guarded::{Guard, Guarded};
pub(crate) use crate::suite::{NORMAL, Output, Suite, Tolerance};
pub(crate) use crate::weights::{cancelled, column_energy};
pub(crate) use gristmill_kernels::Backend;
pub(crate) use gristmill_kernels::act::{Act, ActReader, Precision};
pub(crate) use gristmill_kernels::format::Format;
pub(crate) use gristmill_kernels::ops::*;
pub(crate) use gristmill_kernels::tensor::DeviceId;
pub(crate) use gristmill_kernels::weight::TensorView;
pub(crate) use std::fmt::Display;

/// Row counts around the sizes that kernels like.
pub(crate) const TOKENS: &[usize] = &[0, 1, 2, 5, 15, 16, 17, 33, 70];

/// Output counts around the 16 rows of a tile.
pub(crate) const OUTPUTS: &[usize] = &[1, 15, 16, 17, 203];

/// Error of sums of `terms` products in f32. Rounding a running sum of `k` unit-variance terms costs k · 2⁻⁴⁸ / 3 of
/// their variance at each step, so `terms` · 2⁻⁴⁸ / 6 of the result's in all. Six times that is allowed, for weights
/// whose own making rounds (scale · code − minimum, with cancellation), and a few roundings for results of few terms.
pub(crate) fn exact(terms: usize) -> f64 {
    1e-14 + terms as f64 * 2.0_f64.powi(-48)
}

/// Error of a router's weights, which equal logits share: e^-x, a sum with it, a quotient and the product with the
/// scale are rounded in turn, each by up to 2⁻²⁴ (the first counts half in the sum).
pub(crate) const ROUTE: f64 = (3.5 / (1 << 24) as f64) * (3.5 / (1 << 24) as f64);

/// The same where experts have scales: one more product is rounded.
pub(crate) const SCALED_ROUTE: f64 = (4.5 / (1 << 24) as f64) * (4.5 / (1 << 24) as f64);

/// Error of a capped value, in parts of the cap: an exponential, a sum with it, a quotient below 2 and a difference below
/// 1 are rounded in turn. The exponential's error counts up to half, the quotient's ends in steps of 2⁻²³.
pub(crate) const SOFT_CAP: f64 = (4.0 / (1 << 24) as f64) * (4.0 / (1 << 24) as f64);

/// Error of products of weights with these rows as int8 with a scale per 32: rounding to steps of max / 127 has a
/// variance of step² / 12 (for normals 3e-5 of theirs). Twice that is allowed, because few roundings may be unlucky
/// together. Errors count as their column's `weights` do, in mean square: few large activations may meet small ones.
pub(crate) fn int8(x: &[f32], weights: &[f64]) -> f64 {
    let (mut error, mut power) = (0.0, 0.0);
    for row in x.chunks(weights.len().max(1)) {
        for (block, weights) in row.chunks(32).zip(weights.chunks(32)) {
            let largest = block.iter().fold(0.0_f64, |m, &x| m.max(f64::from(x).abs()));
            error += weights.iter().sum::<f64>() * (largest / 127.0).powi(2) / 12.0;
            power += block.iter().zip(weights).map(|(&x, w)| f64::from(x).powi(2) * w).sum::<f64>();
        }
    }
    if power > 0.0 { 2.0 * error / power } else { 0.0 }
}

/// Error of the same with activations rounded to bfloat16, which has 8 significant bits: numbers from 2ⁿ to 2ⁿ⁺¹ lie
/// 2ⁿ⁻⁷ apart, so rounding has a variance of that squared / 12 (for normals 3e-6 of theirs). Twice that is allowed, as
/// for int8; of few numbers, whose errors all outputs share, three times that, which is what the largest error comes
/// to.
pub(crate) fn bf16(x: &[f32], weights: &[f64]) -> f64 {
    let (mut error, mut power) = (0.0, 0.0);
    for row in x.chunks(weights.len().max(1)) {
        for (x, w) in row.iter().zip(weights).map(|(&x, w)| (f64::from(x).abs(), w)).filter(|(x, _)| *x > 0.0) {
            error += w * (x.log2().floor() - 7.0).exp2().powi(2) / 12.0;
            power += w * x.powi(2);
        }
    }
    let times = if x.len() < 64 { 3.0 } else { 2.0 };
    if power > 0.0 { times * error / power } else { 0.0 }
}

/// The format that activations are rounded to for these tensors, the coarsest if they differ. For bfloat16 weights a
/// level may round or not, depending on the CPU.
#[derive(Clone, Copy)]
pub(crate) enum Rounding {
    None,
    Bf16,
    /// Weights too.
    Bf16Both,
    Int8,
}

pub(crate) fn rounding(tensors: &[TensorView], precision: Precision) -> Rounding {
    match precision {
        Precision::Fast if tensors.iter().any(|t| !t.format.is_float()) => Rounding::Int8,
        Precision::Fast if tensors.iter().any(|t| t.format.is_narrow_float()) => Rounding::Bf16Both,
        Precision::Fast if tensors.iter().any(|t| t.format.is_bf16()) => Rounding::Bf16,
        _ => Rounding::None,
    }
}

/// The bound of a product of these tensors with activations of this precision. What cancels in it is rounded too, in a
/// few sums and products, each with a variance of about 2⁻⁴⁸ / 6 of it: six times eight of these are allowed.
pub(crate) fn product_bound(tensors: &[TensorView], precision: Precision, x: &[f32]) -> f64 {
    let cols = tensors[0].cols;
    exact(cols)
        + 8.0 * cancelled(tensors, x) * 2.0_f64.powi(-48)
        + match rounding(tensors, precision) {
            Rounding::None => 0.0,
            Rounding::Bf16 => bf16(x, &column_energy(tensors)),
            Rounding::Bf16Both => 2.0 * bf16(x, &column_energy(tensors)),
            Rounding::Int8 => int8(x, &column_energy(tensors)),
        }
}

pub(crate) const PRECISIONS: [Precision; 2] = [Precision::Exact, Precision::Fast];

/// The name under which errors are reported: without rounding, rounded to bfloat16, and to int8.
pub(crate) fn kind(names: [&'static str; 3], tensors: &[TensorView], precision: Precision) -> &'static str {
    names[match rounding(tensors, precision) {
        Rounding::None => 0,
        Rounding::Bf16 | Rounding::Bf16Both => 1,
        Rounding::Int8 => 2,
    }]
}

/// Activations of a contiguous matrix in a guard. Made last, so that a GPU may start with what takes them before they
/// are there: an upload in between would wait for them.
pub(crate) fn activations(b: &Backend, precision: Precision, x: &[f32], rows: usize, cols: usize) -> Act {
    let x = Guarded::of(b, x, rows, cols, Guard::ODD);
    // Room for more than there is, as a bucket of an arena has.
    let mut act = b.alloc_act(precision, rows + 1, cols).expect("alloc_act");
    b.run(PrepareActivations { x: x.view(), act: &mut act }).expect("prepare_activations");
    assert_eq!((act.rows(), act.cols()), (rows, cols));
    act
}

/// Makes activations a million times as large, now and then: 16 bits would not hold them, nor what is made of them.
pub(crate) fn sometimes_huge(rng: &mut crate::rng::Rng, x: &mut [f32]) {
    if rng.chance(0.2) {
        x.iter_mut().for_each(|x| *x *= 1e6);
    }
}

/// Whether a GPU, or a CPU with tiles, chooses the kernel of a dense product by the number of rows.
pub(crate) fn by_rows(tensors: &[TensorView], precision: Precision) -> bool {
    precision == Precision::Fast || tensors.iter().any(|tensor| tensor.format == Format::F32)
}

pub(crate) fn nmse(bound: f64, energy: f64) -> Tolerance {
    Tolerance::Nmse { bound, unlucky: NORMAL, energy }
}

/// The same for weights of chosen experts. A bias may choose an expert whose share is below the least normal number,
/// 2⁻¹²⁶: it has fewer bits, and is zero on devices that flush it. Below 2⁻¹⁰⁰ (2⁻¹²⁶ is a quarter of its rounding)
/// errors count as those of 2⁻¹⁰⁰.
pub(crate) fn nmse_of_shares(bound: f64) -> Tolerance {
    nmse(bound, 2.0_f64.powi(-200))
}

/// The same for outputs of rows of `x` (T × cols) that differ in size. Errors are as large as their rows, so those of the
/// largest row may be most of the sum: it counts as few outputs as have its share of the power.
pub(crate) fn nmse_of_rows(bound: f64, energy: f64, x: &[f32], cols: usize) -> Tolerance {
    let powers = x.chunks(cols.max(1)).map(|row| row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>());
    let (rows, sum, largest) =
        powers.fold((0, 0.0, 0.0_f64), |(rows, sum, largest), power| (rows + 1, sum + power, largest.max(power)));
    let unevenness = if sum > 0.0 { f64::from(rows) * largest / sum } else { 1.0 };
    Tolerance::Nmse { bound, unlucky: NORMAL * unevenness, energy }
}

/// Fails unless rows of a batch are as in a smaller batch: the same bits. For rounded activations and for weights in
/// F32, a backend that is not deterministic chooses the kernel by the number of rows (`by_rows`); where each is within a
/// bound of the reference, their difference has at most four times that.
pub(crate) fn as_alone(
    suite: &Suite,
    by_rows: bool,
    kind: &'static str,
    case: &dyn Display,
    tolerance: Tolerance,
    of_whole: &Output,
    alone: &Output,
) {
    let by_rows = by_rows && !suite.backend().deterministic();
    match tolerance {
        Tolerance::Nmse { bound, unlucky, energy } if by_rows => {
            let tolerance = Tolerance::Nmse { bound: 4.0 * bound, unlucky, energy };
            suite.compare(kind, case, tolerance, of_whole, alone);
        }
        _ => suite.same(case, of_whole, alone),
    }
}

/// A format for tests that are about something else: those with kernels of their own and one of each other sort.
pub(crate) const SOME_FORMATS: &[Format] =
    &[Format::F32, Format::F16, Format::BF16, Format::Q4_K, Format::Q8_0, Format::Q6_K];

//! The cases, one file for each family of operations.

pub mod attention;
pub mod experts;
pub mod gated;
pub mod matmul;
pub mod refuse;
pub mod route;
pub mod rows;
pub mod sample;

use crate::framed::{Frame, Framed};
use crate::suite::{Suite, Tolerance};
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::Backend;
use gristmill_kernels::weight::TensorView;

/// A part of the suite.
pub type Part = fn(&Suite);

/// Every part of the suite, by name.
pub const ALL: &[(&str, Part)] = &[
    ("matmul", matmul::shapes),
    ("matmul_joined", matmul::joined),
    ("matmul_rows", matmul::rows),
    ("matmul_extremes", matmul::extremes),
    ("gate_up", gated::dense),
    ("moe_gate_up", gated::experts),
    ("moe_matmul", experts::matmul),
    ("moe_combine", experts::combine),
    ("group_by_expert", route::group),
    ("route", route::route),
    ("embed", rows::embed),
    ("rms_norm", rows::rms_norm),
    ("qk_norm", rows::qk_norm),
    ("rope", rows::rope),
    ("add", rows::add),
    ("argmax", sample::argmax),
    ("sample", sample::sample),
    ("sample_distribution", sample::distribution),
    ("attention", attention::attention),
    ("kv_copy", attention::copy),
    ("refuse_matrices", refuse::matrices),
    ("refuse_experts", refuse::experts),
    ("refuse_rows", refuse::rows),
    ("refuse_attention", refuse::attention),
    ("refuse_memory", refuse::memory),
];

/// Row counts around the sizes that kernels like.
const TOKENS: &[usize] = &[0, 1, 2, 5, 15, 16, 17, 33, 70];

/// Output counts around the 16 rows of a tile.
const OUTPUTS: &[usize] = &[1, 15, 16, 17, 203];

/// Error of sums of `terms` products in f32. Rounding a running sum of `k` unit-variance terms costs k · 2⁻⁴⁸ / 3 of
/// their variance at each step, so `terms` · 2⁻⁴⁸ / 6 of the result's in all; the factor 24 over that is for weights
/// whose own making rounds (scale · code − minimum, with cancellation).
fn exact(terms: usize) -> f64 {
    1e-13 + 4.0 * terms as f64 * 2.0_f64.powi(-48)
}

/// Error of int8 activations with a scale per 32. The largest of 32 normals is about 2.2 σ, at most 4.5 σ; steps of
/// that / 127 have a variance of 2.5e-5 to 1e-4 σ². Measured: 3e-5.
const INT8: f64 = 6e-5;

/// The bound of a product of these tensors with activations of this precision.
fn product_bound(tensors: &[TensorView], precision: Precision) -> f64 {
    let quantised = tensors.iter().any(|t| !t.format.is_float());
    let exact = exact(tensors[0].cols);
    if quantised && precision == Precision::Fast { exact + INT8 } else { exact }
}

const PRECISIONS: [Precision; 2] = [Precision::Exact, Precision::Fast];

/// The name under which errors are reported.
fn kind(exact: &'static str, fast: &'static str, tensors: &[TensorView], precision: Precision) -> &'static str {
    let quantised = tensors.iter().any(|t| !t.format.is_float());
    if quantised && precision == Precision::Fast { fast } else { exact }
}

/// Activations of a contiguous matrix in a frame.
fn activations(b: &dyn Backend, precision: Precision, x: &[f32], rows: usize, cols: usize) -> Act {
    let x = Framed::of(b, x, rows, cols, Frame::ODD);
    // Room for more than there is, as a bucket of an arena has.
    let mut act = b.alloc_act(precision, rows + 1, cols).expect("alloc_act");
    b.prepare_activations(x.view(), &mut act).expect("prepare_activations");
    assert_eq!((act.rows(), act.cols()), (rows, cols));
    act
}

fn nmse(bound: f64, energy: f64) -> Tolerance {
    Tolerance::Nmse { bound, energy }
}

/// A format for tests that are about something else: those with kernels of their own and one of each other sort.
const SOME_FORMATS: &[Format] = &[Format::F32, Format::F16, Format::Q4_K, Format::Q8_0, Format::Q6_K];

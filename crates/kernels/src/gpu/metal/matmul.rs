//! Dense matrix operations, and the preparation of weights.

use super::{gemm, gemv};
use crate::act::Act;
use crate::check;
use crate::error::Result;
use crate::gpu::finish::Finish;
use crate::gpu::layout::{Rows, pair, parts};
use crate::gpu::product::{Bias, ProductParams, Which, bias_arg, lists};
use crate::gpu::{Access, Arg, Device};
use crate::ops::Activation;
use crate::tensor::{Buffer, View, ViewMut};
use crate::weight::{Role, Storage, TensorView, Weight};
use std::slice::from_ref;

/// [`crate::ops::Backend::prepare`]: each tensor stays by itself, as the file has it.
pub(super) fn prepare(device: &Device, tensors: &[TensorView], role: Role) -> Result<Weight> {
    let (experts, rows, cols) = check::prepare(tensors, role)?;
    let parts = tensors.iter().map(|tensor| Rows::of_file(device, tensor)).collect::<Result<_>>()?;
    Ok(Weight { device: device.id(), role, experts, rows, cols, storage: Storage::Rows(parts) })
}

/// What the kernels of dot products and of tiles both compute, from the same arguments.
#[derive(Clone, Copy, Debug)]
pub(super) enum Product {
    /// X · Wᵀ + bias.
    Matmul,
    /// activation(gate · x + bias, up · x + bias).
    GateUp,
}

/// Weights that a kernel takes at once.
const JOINED: usize = 3;

/// The parts of a weight, by those that one launch multiplies: up to three neighbours of one format, whose outputs are side
/// by side. Experts are by themselves.
pub(super) fn runs(parts: &[Rows]) -> impl Iterator<Item = &[Rows]> {
    parts.chunk_by(|a, b| a.format == b.format && a.experts == 1).flat_map(|run| run.chunks(JOINED))
}

/// A run as arguments.
pub(super) fn part_args(run: &[Rows]) -> [Arg<'_>; JOINED] {
    std::array::from_fn(|i| run.get(i).map_or(Arg::Null, Rows::arg))
}

/// X · Wᵀ + bias, which finishes in Y, run by run.
pub(super) fn multiply(
    device: &Device,
    op: &'static str,
    w: &Weight,
    x: &Act,
    which: Which,
    bias: Option<&Buffer<f32>>,
    finish: Finish,
    mut y: ViewMut<f32>,
) -> Result<()> {
    if y.rows() == 0 {
        return Ok(());
    }
    let mut first = 0;
    for run in runs(parts(op, w)?) {
        let outputs: usize = run.iter().map(|part| part.rows).sum();
        let y = y.reborrow().columns(first..first + outputs)?;
        let bias = bias.map(|values| Bias { values, first, matrix: w.rows });
        multiply_run(device, op, run, x, which, bias, finish, &y)?;
        first += outputs;
    }
    Ok(())
}

/// One run. Kernels are chosen by the rows of X, which the host knows.
fn multiply_run(
    device: &Device,
    op: &'static str,
    run: &[Rows],
    x: &Act,
    which: Which,
    bias: Option<Bias>,
    finish: Finish,
    y: &ViewMut<f32>,
) -> Result<()> {
    let tiles = gemm::serves(&run[0], x, which, y.rows());
    let team_log2 = if tiles { 0 } else { gemv::team_log2(run[0].spans) };
    let stride = y.shape().stride();
    let params = ProductParams::new(op, &run[0], x, which, bias, team_log2, finish, stride, y.rows())?;
    let params = params.joined(op, run)?;
    let [pairs, list, tile_count] = lists(which);
    let ids = if let Which::Ids(ids) = &which { Arg::read(ids) } else { Arg::Null };
    let (x, bias, to) = (Arg::buffer(&x.exact, Access::Read), bias_arg(bias), finish.output(y));
    let [weight, second, third] = part_args(run);
    let (flag, params) = (device.flag(), Arg::params(&params));
    let args = [weight, second, third, x, ids, pairs, list, tile_count, bias, to, flag, params];
    let launch = if tiles { gemm::launch } else { gemv::launch };
    launch(device, op, Product::Matmul, run, which, y.rows(), &args)
}

/// H = activation(gate · x + bias, up · x + bias).
pub(super) fn multiply_gated(
    device: &Device,
    op: &'static str,
    w: &Weight,
    x: &Act,
    which: Which,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
) -> Result<()> {
    if h.rows() == 0 {
        return Ok(());
    }
    let [gate, up] = pair(op, w)?;
    if gate.format == up.format {
        return gate_up_run(device, op, [gate, up], x, which, bias, activation, &h);
    }
    // Two formats are two products: the gates, then what they gate.
    let [gate_bias, up_bias] = Bias::both(bias, w.rows);
    multiply_run(device, op, from_ref(gate), x, which, gate_bias, Finish::Store, &h)?;
    multiply_run(device, op, from_ref(up), x, which, up_bias, Finish::Gate(activation), &h)
}

/// The same for two weights of one format, which one launch takes.
fn gate_up_run(
    device: &Device,
    op: &'static str,
    [gate, up]: [&Rows; 2],
    x: &Act,
    which: Which,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: &ViewMut<f32>,
) -> Result<()> {
    let tiles = gemm::serves(gate, x, which, h.rows());
    let team_log2 = if tiles { 0 } else { gemv::team_log2(gate.spans) };
    let [gate_bias, up_bias] = Bias::both(bias, gate.rows);
    let (finish, stride) = (Finish::Gate(activation), h.shape().stride());
    let params = ProductParams::new(op, gate, x, which, gate_bias, team_log2, finish, stride, h.rows())?;
    let [pairs, list, tile_count] = lists(which);
    let (x, to) = (Arg::buffer(&x.exact, Access::Read), Arg::write(h));
    let (gate_bias, up_bias, params) = (bias_arg(gate_bias), bias_arg(up_bias), Arg::params(&params));
    let args = [gate.arg(), up.arg(), x, pairs, list, tile_count, gate_bias, up_bias, to, params];
    let launch = if tiles { gemm::launch } else { gemv::launch };
    launch(device, op, Product::GateUp, from_ref(gate), which, h.rows(), &args)
}

/// [`crate::ops::Backend::matmul`], checked.
pub(super) fn matmul(device: &Device, w: &Weight, x: &Act, bias: Option<&Buffer<f32>>, y: ViewMut<f32>) -> Result<()> {
    multiply(device, "matmul", w, x, Which::All, bias, Finish::Store, y)
}

/// [`crate::ops::Backend::matmul_finish`], checked.
pub(super) fn matmul_finish(
    device: &Device,
    w: &Weight,
    x: &Act,
    bias: Option<&Buffer<f32>>,
    finish: Finish,
    y: ViewMut<f32>,
) -> Result<()> {
    multiply(device, "matmul_finish", w, x, Which::All, bias, finish, y)
}

/// [`crate::ops::Backend::matmul_rows`], checked.
pub(super) fn matmul_rows(device: &Device, w: &Weight, x: &Act, rows: View<u32>, y: ViewMut<f32>) -> Result<()> {
    multiply(device, "matmul_rows", w, x, Which::Ids(rows), None, Finish::Store, y)
}

/// [`crate::ops::Backend::gate_up_act`], checked: `h` is left as it is.
pub(super) fn gate_up_act(
    device: &Device,
    w: &Weight,
    x: &Act,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    rows: usize,
    act: &mut Act,
) -> Result<()> {
    let h = prepared(act, rows, w.rows())?;
    multiply_gated(device, "gate_up_act", w, x, Which::All, bias, activation, h)
}

/// Activations of so many rows and columns that are about to be written: they are floats, like any output.
pub(super) fn prepared(act: &mut Act, rows: usize, cols: usize) -> Result<ViewMut<'_, f32>> {
    (act.rows, act.cols) = (rows, cols);
    act.exact.view_mut(rows, cols)
}

/// [`crate::ops::Backend::gate_up`], checked.
pub(super) fn gate_up(
    device: &Device,
    w: &Weight,
    x: &Act,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
) -> Result<()> {
    multiply_gated(device, "gate_up", w, x, Which::All, bias, activation, h)
}

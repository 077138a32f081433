//! Products with weights, dense and of experts.

use super::{gemm, gemv};
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::layout::{PlaneRows, pair, parts};
use gristmill_gpu::product::{Bias, ProductParams, RowSelection, bias_arg, lists};
use gristmill_gpu::storage::GpuAct;
use gristmill_gpu::{Access, Arg, Device};
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::Activation;
use gristmill_kernels::tensor::{Buffer, ViewMut};
use gristmill_kernels::weight::Weight;
use std::slice::from_ref;

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
pub(super) fn runs(parts: &[PlaneRows]) -> impl Iterator<Item = &[PlaneRows]> {
    parts.chunk_by(|a, b| a.format == b.format && a.experts == 1).flat_map(|run| run.chunks(JOINED))
}

/// A run as arguments.
pub(super) fn part_args(run: &[PlaneRows]) -> [Arg<'_>; JOINED] {
    std::array::from_fn(|i| run.get(i).map_or(Arg::Null, PlaneRows::arg))
}

/// X · Wᵀ + bias, with an epilogue in Y, run by run.
pub(super) fn multiply(
    device: &Device,
    op: &'static str,
    w: &Weight,
    x: &Act,
    which: RowSelection,
    bias: Option<&Buffer<f32>>,
    epilogue: ProductEpilogue,
    mut y: ViewMut<f32>,
) -> Result<()> {
    if y.rows() == 0 {
        return Ok(());
    }
    let mut first = 0;
    for run in runs(parts(op, w)?) {
        let outputs: usize = run.iter().map(|part| part.rows).sum();
        let y = y.reborrow().columns(first..first + outputs)?;
        let bias = bias.map(|values| Bias { values, first, matrix: w.rows() });
        multiply_run(device, op, run, x, which, bias, epilogue, &y)?;
        first += outputs;
    }
    Ok(())
}

/// One run. Kernels are chosen by the rows of X, which the host knows.
fn multiply_run(
    device: &Device,
    op: &'static str,
    run: &[PlaneRows],
    x: &Act,
    which: RowSelection,
    bias: Option<Bias>,
    epilogue: ProductEpilogue,
    y: &ViewMut<f32>,
) -> Result<()> {
    let tiles = gemm::serves(&run[0], x, which, y.rows());
    let team_log2 = if tiles { 0 } else { gemv::team_log2(run[0].spans) };
    let stride = y.layout().stride();
    let params = ProductParams::new(op, &run[0], x, which, bias, team_log2, epilogue, stride, y.rows())?;
    let params = params.joined(op, run)?;
    let [pairs, list, tile_count] = lists(which);
    let ids = if let RowSelection::Ids(ids) = &which { Arg::read(ids) } else { Arg::Null };
    let x: &GpuAct = x.storage(op)?;
    let (x, bias, to) = (x.exact(Access::Read), bias_arg(bias), epilogue.output(y));
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
    which: RowSelection,
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
    let [gate_bias, up_bias] = Bias::both(bias, w.rows());
    multiply_run(device, op, from_ref(gate), x, which, gate_bias, ProductEpilogue::Store, &h)?;
    multiply_run(device, op, from_ref(up), x, which, up_bias, ProductEpilogue::Gate(activation), &h)
}

/// The same for two weights of one format, which one launch takes.
fn gate_up_run(
    device: &Device,
    op: &'static str,
    [gate, up]: [&PlaneRows; 2],
    x: &Act,
    which: RowSelection,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: &ViewMut<f32>,
) -> Result<()> {
    let tiles = gemm::serves(gate, x, which, h.rows());
    let team_log2 = if tiles { 0 } else { gemv::team_log2(gate.spans) };
    let [gate_bias, up_bias] = Bias::both(bias, gate.rows);
    let (epilogue, stride) = (ProductEpilogue::Gate(activation), h.layout().stride());
    let params = ProductParams::new(op, gate, x, which, gate_bias, team_log2, epilogue, stride, h.rows())?;
    let [pairs, list, tile_count] = lists(which);
    let x: &GpuAct = x.storage(op)?;
    let (x, to) = (x.exact(Access::Read), Arg::write(h));
    let (gate_bias, up_bias, params) = (bias_arg(gate_bias), bias_arg(up_bias), Arg::params(&params));
    let args = [gate.arg(), up.arg(), x, pairs, list, tile_count, gate_bias, up_bias, to, params];
    let launch = if tiles { gemm::launch } else { gemv::launch };
    launch(device, op, Product::GateUp, from_ref(gate), which, h.rows(), &args)
}

/// Activations of so many rows and columns that are about to be written: they are floats, like any output.
pub(super) fn act_output<'a>(op: &'static str, act: &'a mut Act, rows: usize, cols: usize) -> Result<ViewMut<'a, f32>> {
    act.storage_mut::<GpuAct>(op)?.exact.view_mut(rows, cols)
}

//! Dense matrix operations, and the preparation of weights.

use super::{gemm, gemv};
use crate::act::Act;
use crate::check;
use crate::error::Result;
use crate::gpu::Device;
use crate::gpu::finish::Finish;
use crate::gpu::layout::{Rows, pair, parts};
use crate::gpu::product::{Bias, Which};
use crate::ops::Activation;
use crate::tensor::{Buffer, View, ViewMut};
use crate::weight::{Role, Storage, TensorView, Weight};

/// [`crate::ops::Backend::prepare`]: each tensor stays by itself, as the file has it.
pub(super) fn prepare(device: &Device, tensors: &[TensorView], role: Role) -> Result<Weight> {
    let (experts, rows, cols) = check::prepare(tensors, role)?;
    let parts = tensors.iter().map(|tensor| Rows::of_file(device, tensor)).collect::<Result<_>>()?;
    Ok(Weight { device: device.id(), role, experts, rows, cols, storage: Storage::Rows(parts) })
}

/// X · Wᵀ + bias, which finishes in Y, part by part.
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
    for part in parts(op, w)? {
        let y = y.reborrow().columns(first..first + part.rows)?;
        let bias = bias.map(|values| Bias { values, first, matrix: w.rows });
        multiply_part(device, op, part, x, which, bias, finish, &y)?;
        first += part.rows;
    }
    Ok(())
}

/// One part. Kernels are chosen by the rows of X, which the host knows.
fn multiply_part(
    device: &Device,
    op: &'static str,
    w: &Rows,
    x: &Act,
    which: Which,
    bias: Option<Bias>,
    finish: Finish,
    y: &ViewMut<f32>,
) -> Result<()> {
    let matmul = if gemm::serves(w, x, which, y.rows()) { gemm::matmul } else { gemv::matmul };
    matmul(device, op, w, x, which, bias, finish, y)
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
        let gate_up = if gemm::serves(gate, x, which, h.rows()) { gemm::gate_up } else { gemv::gate_up };
        return gate_up(device, op, [gate, up], x, which, bias, activation, &h);
    }
    // Two formats are two products: the gates, then what they gate.
    let [gate_bias, up_bias] = Bias::both(bias, w.rows);
    multiply_part(device, op, gate, x, which, gate_bias, Finish::Store, &h)?;
    multiply_part(device, op, up, x, which, up_bias, Finish::Gate(activation), &h)
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

//! Dense matrix operations, and the preparation of weights.

use super::family::{Family, chosen};
use super::product::{Bias, Gated, Which};
use super::{gemm, gemm_f32, gemm_int8, gemv};
use crate::act::Act;
use crate::check;
use crate::error::Result;
use crate::gpu::Device;
use crate::gpu::finish::Finish;
use crate::gpu::layout::{Rows, pair, parts};
use crate::gpu::small::activations::prepare_activations;
use crate::ops::Activation;
use crate::tensor::{Buffer, View, ViewMut};
use crate::weight::{Role, Storage, TensorView, Weight};

/// [`crate::ops::Backend::prepare`].
pub(crate) fn prepare(device: &Device, tensors: &[TensorView], role: Role) -> Result<Weight> {
    let (experts, rows, cols) = check::prepare(tensors, role)?;
    let storage: Result<_> = match role {
        // Neighbours of one format are one matrix, so that one launch multiplies them.
        Role::Matrix => tensors.chunk_by(|a, b| a.format == b.format).map(|run| Rows::new(device, run)).collect(),
        Role::GateUp | Role::Table | Role::Tied => tensors.chunks(1).map(|one| Rows::new(device, one)).collect(),
    };
    Ok(Weight { device: device.id(), role, experts, rows, cols, storage: Storage::Rows(storage?) })
}

/// X · Wᵀ + bias, which finishes in Y, part by part. Kernels are chosen by the rows of X, which the host knows.
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

/// One part.
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
    let family = chosen(device, op, w, x, which, y.rows())?;
    if device.family().is_none() && matches!(finish, Finish::Store) && gemm_f32::serves(w, which, y.rows()) {
        return gemm_f32::matmul(device, op, w, x, bias, y);
    }
    let matmul = match family {
        Family::Gemv => gemv::matmul,
        Family::Int8 => gemm_int8::matmul,
        Family::Mma | Family::Wgmma => gemm::matmul,
    };
    matmul(device, op, w, x, which, bias, finish, y)
}

/// H = activation(gate · x + bias, up · x + bias); and if `act` is given, that as activations, and H may be undefined.
pub(super) fn multiply_gated(
    device: &Device,
    op: &'static str,
    w: &Weight,
    x: &Act,
    which: Which,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
    mut act: Option<&mut Act>,
) -> Result<()> {
    let [gate, up] = pair(op, w)?;
    if gate.format != up.format {
        // Two formats are two products: the gates, then what they gate.
        let [gate_bias, up_bias] = Bias::both(bias, w.rows);
        multiply_part(device, op, gate, x, which, gate_bias, Finish::Store, &h)?;
        multiply_part(device, op, up, x, which, up_bias, Finish::Gate(activation), &h)?;
    } else {
        let gate_up = match chosen(device, op, gate, x, which, h.rows())? {
            Family::Gemv => gemv::gate_up,
            Family::Int8 => gemm_int8::gate_up,
            Family::Mma | Family::Wgmma => {
                gemm::gate_up(device, op, [gate, up], x, which, bias, activation, &h)?;
                return act.map_or(Ok(()), |act| prepare_activations(device, h.as_view(), act));
            }
        };
        if let Some(act) = &mut act {
            (act.rows, act.cols) = (h.rows(), h.cols());
        }
        let to = Gated { h: act.is_none().then_some(&h), act: act.as_deref() };
        return gate_up(device, op, [gate, up], x, which, bias, activation, h.rows(), to);
    }
    act.map_or(Ok(()), |act| prepare_activations(device, h.as_view(), act))
}

/// [`crate::ops::Backend::matmul`], checked.
pub(crate) fn matmul(device: &Device, w: &Weight, x: &Act, bias: Option<&Buffer<f32>>, y: ViewMut<f32>) -> Result<()> {
    multiply(device, "matmul", w, x, Which::All, bias, Finish::Store, y)
}

/// [`crate::ops::Backend::matmul_finish`], checked.
pub(crate) fn matmul_finish(
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
pub(crate) fn matmul_rows(device: &Device, w: &Weight, x: &Act, rows: View<u32>, y: ViewMut<f32>) -> Result<()> {
    multiply(device, "matmul_rows", w, x, Which::Ids(rows), None, Finish::Store, y)
}

/// [`crate::ops::Backend::gate_up`], checked.
pub(crate) fn gate_up(
    device: &Device,
    w: &Weight,
    x: &Act,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
) -> Result<()> {
    multiply_gated(device, "gate_up", w, x, Which::All, bias, activation, h, None)
}

/// [`crate::ops::Backend::gate_up_act`], checked.
pub(crate) fn gate_up_act(
    device: &Device,
    w: &Weight,
    x: &Act,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
    act: &mut Act,
) -> Result<()> {
    multiply_gated(device, "gate_up_act", w, x, Which::All, bias, activation, h, Some(act))
}

//! Dense matrix operations, and the preparation of weights.

use super::Cuda;
use super::family::{Family, chosen};
use super::{gemm, gemm_f32, gemm_int8, gemv};
use gristmill_gpu::common::activations::prepare_activations;
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::layout::{PlaneRows, pair, parts};
use gristmill_gpu::product::{Bias, Gated, RowSelection};
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::Activation;
use gristmill_kernels::tensor::{Buffer, ViewMut};
use gristmill_kernels::weight::{Role, TensorView, Weight};

/// The parts of a weight.
pub(super) fn prepare(cuda: &Cuda, tensors: &[TensorView], role: Role) -> Result<Vec<PlaneRows>> {
    match role {
        // Neighbours of one format are one matrix, so that one launch multiplies them.
        Role::Matrix => {
            tensors.chunk_by(|a, b| a.format == b.format).map(|run| PlaneRows::new(&cuda.device, run)).collect()
        }
        _ => tensors.chunks(1).map(|one| PlaneRows::new(&cuda.device, one)).collect(),
    }
}

/// X · Wᵀ + bias, with an epilogue in Y, part by part. Kernels are chosen by the rows of X, which the host knows.
pub(super) fn multiply(
    cuda: &Cuda,
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
    for part in parts(op, w)? {
        let y = y.reborrow().columns(first..first + part.rows)?;
        let bias = bias.map(|values| Bias { values, first, matrix: w.rows() });
        multiply_part(cuda, op, part, x, which, bias, epilogue, &y)?;
        first += part.rows;
    }
    Ok(())
}

/// One part.
fn multiply_part(
    cuda: &Cuda,
    op: &'static str,
    w: &PlaneRows,
    x: &Act,
    which: RowSelection,
    bias: Option<Bias>,
    epilogue: ProductEpilogue,
    y: &ViewMut<f32>,
) -> Result<()> {
    let family = chosen(cuda, op, w, x, which, y.rows())?;
    if cuda.family().is_none() && matches!(epilogue, ProductEpilogue::Store) && gemm_f32::serves(w, which, y.rows()) {
        return gemm_f32::matmul(cuda, op, w, x, bias, y);
    }
    let matmul = match family {
        Family::Gemv => gemv::matmul,
        Family::Int8 => gemm_int8::matmul,
        Family::Mma | Family::Wgmma => gemm::matmul,
    };
    matmul(cuda, op, w, x, which, bias, epilogue, y)
}

/// H = activation(gate · x + bias, up · x + bias); and if `act` is given, that as activations, and H may be undefined.
pub(super) fn multiply_gated(
    cuda: &Cuda,
    op: &'static str,
    w: &Weight,
    x: &Act,
    which: RowSelection,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: ViewMut<f32>,
    act: Option<&Act>,
) -> Result<()> {
    let [gate, up] = pair(op, w)?;
    if gate.format != up.format {
        // Two formats are two products: the gates, then what they gate.
        let [gate_bias, up_bias] = Bias::both(bias, w.rows());
        multiply_part(cuda, op, gate, x, which, gate_bias, ProductEpilogue::Store, &h)?;
        multiply_part(cuda, op, up, x, which, up_bias, ProductEpilogue::Gate(activation), &h)?;
    } else {
        let gate_up = match chosen(cuda, op, gate, x, which, h.rows())? {
            Family::Gemv => gemv::gate_up,
            Family::Int8 => gemm_int8::gate_up,
            Family::Mma | Family::Wgmma => {
                gemm::gate_up(cuda, op, [gate, up], x, which, bias, activation, &h)?;
                return act.map_or(Ok(()), |act| prepare_activations(&cuda.device, h.as_view(), act));
            }
        };
        let act = act.map(|act| act.storage(op)).transpose()?;
        let to = Gated { h: act.is_none().then_some(&h), act };
        return gate_up(cuda, op, [gate, up], x, which, bias, activation, h.rows(), to);
    }
    act.map_or(Ok(()), |act| prepare_activations(&cuda.device, h.as_view(), act))
}

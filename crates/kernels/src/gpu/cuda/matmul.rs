//! Dense matrix operations, embeddings, and the preparation of weights and activations.

use super::product::{Bias, Gated, Which, word};
use super::texts::Text;
use super::{gemm, gemm_f32, gemm_int8, gemv};
use crate::act::{Act, Precision};
use crate::check;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::gpu::finish::Finish;
use crate::gpu::layout::Rows;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
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

/// The parts of a weight that this backend has prepared.
pub(super) fn parts<'a>(op: &'static str, w: &'a Weight) -> Result<&'a [Rows]> {
    match &w.storage {
        Storage::Rows(parts) => Ok(parts),
        _ => Err(foreign(op)),
    }
}

/// The two parts of a [`Role::GateUp`] weight.
pub(super) fn pair<'a>(op: &'static str, w: &'a Weight) -> Result<[&'a Rows; 2]> {
    match parts(op, w)? {
        [gate, up] => Ok([gate, up]),
        _ => Err(foreign(op)),
    }
}

fn foreign(op: &'static str) -> Error {
    let rule = "prepare it with the backend that uses it";
    Error::Range { op, what: "layout of the weight", found: "another backend's".into(), rule }
}

/// Twin of `EmbedParams` in `kernels/embed.cu`.
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
struct EmbedParams {
    row_bytes: u64,
    ids_stride: u64,
    out_stride: u64,
    rows: u32,
    blocks: u32,
    cols: u32,
    scale: f32,
}

/// Every compilation of the kernels for embeddings and activations.
pub(super) fn texts() -> impl Iterator<Item = Text> {
    let embed = |format: &Format| Text { file: "embed.cu", defines: vec![("FORMAT", format.name().to_owned())] };
    Format::ALL.iter().map(embed).chain([Text { file: "quantise.cu", defines: Vec::new() }])
}

/// [`crate::ops::Backend::embed`], checked.
pub(crate) fn embed(device: &Device, table: &Weight, rows: View<u32>, scale: f32, out: ViewMut<f32>) -> Result<()> {
    let op = "embed";
    let [table] = parts(op, table)? else { return Err(foreign(op)) };
    if out.rows() == 0 {
        return Ok(());
    }
    let params = EmbedParams {
        row_bytes: table.row_bytes as u64,
        ids_stride: rows.shape().stride() as u64,
        out_stride: out.shape().stride() as u64,
        rows: word(op, "rows of the table", table.rows)?,
        blocks: word(op, "blocks in a row", table.blocks())?,
        cols: word(op, "columns", table.cols)?,
        scale,
    };
    let defines = [("FORMAT", table.format.name())];
    let args = [table.arg(), Arg::read(&rows), Arg::write(&out), device.flag(), Arg::params(&params)];
    device.launch(&Launch {
        kernel: Kernel { file: "embed.cu", entry: "embed", defines: &defines },
        grid: [word(op, "rows", out.rows())?, 1, 1],
        block: 128,
        shared: 0,
        overlap: true,
        args: &args,
    })
}

/// Twin of `QuantiseParams` in `kernels/quantise.cu`.
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
struct QuantiseParams {
    x_stride: u64,
    rows: u32,
    cols: u32,
    wide: u32,
    padding: u32,
}

/// [`crate::ops::Backend::prepare_activations`], checked.
pub(crate) fn prepare_activations(device: &Device, x: View<f32>, act: &mut Act) -> Result<()> {
    let op = "prepare_activations";
    (act.rows, act.cols) = (x.rows(), x.cols());
    if x.rows() == 0 || x.cols() == 0 {
        return Ok(());
    }
    let (rows, cols) = (word(op, "rows", x.rows())?, word(op, "columns", x.cols())?);
    let shape = x.shape();
    let wide = [shape.span().start, shape.stride(), x.cols()].iter().all(|n| n.is_multiple_of(4));
    let params = QuantiseParams { x_stride: shape.stride() as u64, rows, cols, wide: wide.into(), padding: 0 };
    let [int8, bf16] = match act.precision {
        Precision::Exact => [Arg::Null; 2],
        Precision::Fast => [Arg::buffer(&act.int8, Access::Write), Arg::buffer(&act.bf16, Access::Write)],
    };
    let args = [Arg::read(&x), Arg::buffer(&act.exact, Access::Write), int8, bf16, Arg::params(&params)];
    // Eight threads for 32 elements of a row.
    let blocks = check::elements("activations", &[x.rows(), x.cols().div_ceil(32)])?;
    const THREADS: usize = 128;
    device.launch(&Launch {
        kernel: Kernel { file: "quantise.cu", entry: "quantise", defines: &[] },
        grid: [word(op, "blocks", blocks.div_ceil(THREADS / 8))?, 1, 1],
        block: THREADS as u32,
        shared: 0,
        overlap: true,
        args: &args,
    })
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
    if matches!(finish, Finish::Store) && gemm_f32::serves(w, which, y.rows()) {
        return gemm_f32::matmul(device, op, w, x, bias, y);
    }
    let matmul = if gemm_int8::serves(device, w, x, which, y.rows()) {
        gemm_int8::matmul
    } else if gemm::serves(device, w, x, which, y.rows()) {
        gemm::matmul
    } else {
        gemv::matmul
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
        let [gate_bias, up_bias] =
            bias.map_or([None; 2], |both| both.map(|values| Some(Bias { values, first: 0, matrix: w.rows })));
        multiply_part(device, op, gate, x, which, gate_bias, Finish::Store, &h)?;
        multiply_part(device, op, up, x, which, up_bias, Finish::Gate(activation), &h)?;
    } else {
        let int8 = gemm_int8::serves(device, gate, x, which, h.rows());
        if !int8 && gemm::serves(device, gate, x, which, h.rows()) {
            gemm::gate_up(device, op, [gate, up], x, which, bias, activation, &h)?;
        } else {
            if let Some(act) = &mut act {
                (act.rows, act.cols) = (h.rows(), h.cols());
            }
            let to = Gated { h: act.is_none().then_some(&h), act: act.as_deref() };
            let gate_up = if int8 { gemm_int8::gate_up } else { gemv::gate_up };
            return gate_up(device, op, [gate, up], x, which, bias, activation, h.rows(), to);
        }
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

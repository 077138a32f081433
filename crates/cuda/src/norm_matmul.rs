//! A norm and the product that reads it in one launch, for steps of few tokens: the host side of
//! `kernels/norm_matmul.cu`.

use super::Cuda;
use super::plan::NormMatmulPlan;
use gristmill_gpu::common::norm_act::NormActs;
use gristmill_gpu::common::{RowAlignment, aligned};
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::layout::parts;
use gristmill_gpu::matmul::each_run;
use gristmill_gpu::product::{Product, RowSelection, word};
use gristmill_gpu::{Access, Arg, Kernel, Launch, shared_struct};
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Fused, NormMatmul, Operation, RmsNorm};

shared_struct! {
    pub(super) struct NormMatmulParams {
        // Elements from a row to the next, and bytes of a weight row.
        x_stride: u64,
        normed_stride: u64,
        y_stride: u64,
        row_bytes: u64,
        // Outputs, blocks of the format in a row, and columns of X.
        outputs: u32,
        blocks: u32,
        cols: u32,
        // Threads of a group, as a power of two.
        threads_log2: u32,
        // Rows can be read by four elements.
        aligned: u32,
        eps: f32,
    }
}

/// [`NormMatmul`] in one launch for each part of the weight, for few rows.
pub(super) fn norm_matmul(cuda: &Cuda, call: &mut NormMatmul) -> Result<Fused> {
    const OP: &str = NormMatmul::NAME;
    let NormMatmul { norm, act, other, weight: w, bias, y } = call;
    let Some(acts) = NormActs::new(OP, [Some(act), other.as_deref()])? else { return Ok(Fused::No) };
    let (rows, precision) = (norm.x.rows(), act.precision());
    if !parts(OP, w)?.iter().all(|part| NormMatmulPlan::serves(&cuda.card, &part.into(), precision, rows)) {
        return Ok(Fused::No);
    }
    // The first part's first block writes the copies.
    let launch = |product: &Product| launch(cuda, norm, product, Some(&acts).filter(|_| product.first == 0));
    each_run(OP, w, 1, act, RowSelection::All, *bias, ProductEpilogue::Store, y, launch)?;
    Ok(Fused::Yes)
}

/// Launches the product of one part, which also writes the norm's output, if these are given.
fn launch(cuda: &Cuda, norm: &RmsNorm, product: &Product, copies: Option<&NormActs>) -> Result<()> {
    let RmsNorm { x, weight, eps, out } = norm;
    let op = product.op;
    let part = product.weight();
    let cols = x.cols();
    let plan = NormMatmulPlan::new(&cuda.card, &part.into(), product.x.precision());
    let params = NormMatmulParams {
        x_stride: x.layout().stride() as u64,
        normed_stride: out.layout().stride() as u64,
        y_stride: product.y.layout().stride() as u64,
        row_bytes: part.row_bytes as u64,
        outputs: word(op, "outputs", part.rows)?,
        blocks: word(op, "blocks in a row", part.blocks())?,
        cols: word(op, "columns", cols)?,
        threads_log2: plan.threads_log2,
        aligned: aligned(cols, [RowAlignment::of(x), RowAlignment::of_mut(out)]),
        eps: *eps,
    };
    let [exact, of_int8, bf16, other] = copies.map_or([Arg::Null; 4], NormActs::args);
    let copy = if copies.is_some() { Arg::write(out) } else { Arg::Null };
    let x = Arg::read(x);
    let norm = Arg::buffer(weight, Access::Read);
    let y = product.y_arg();
    let [bias, _] = product.bias_args();
    let params = Arg::params(&params);
    let args = [part.arg(), x, norm, bias, y, copy, exact, of_int8, bf16, other, params];
    let kernel = Kernel { file: plan.file(), entry: "norm_matmul", defines: &plan.defines(part.format) };
    let grid = [product.output_blocks(plan.outputs)?, product.y.rows() as u32, 1];
    let launch = Launch::new(kernel, grid, plan.block as u32, &args);
    cuda.device.launch(&Launch { shared: plan.shared as u32, ..launch })
}

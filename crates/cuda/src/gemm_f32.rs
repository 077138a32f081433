//! Products of f32 weights with many rows of f32 activations: the host side of `kernels/gemm_f32.cu`.

use super::Cuda;
use super::gemm_sum;
use super::plan::{GemmF32Plan, share_bytes};
use gristmill_gpu::product::{Product, word};
use gristmill_gpu::{Access, Arg, Kernel, Launch, shared_struct};
use gristmill_kernels::error::Result;

shared_struct! {
    pub(super) struct GemmF32Params {
        row_bytes: u64,
        y_stride: u64,
        rows: u32,
        outputs: u32,
        cols: u32,
        padding: u32,
    }
}

/// Launches a product.
pub(super) fn multiply(cuda: &Cuda, product: &Product, plan: &GemmF32Plan) -> Result<()> {
    let w = product.weight();
    let y = product.y;
    if plan.shares == 1 {
        let [bias, _] = product.bias_args();
        return launch(cuda, product, plan, bias, Arg::write(y), y.layout().stride());
    }
    let bytes = share_bytes(y.rows(), w.rows, plan.shares).unwrap_or(0);
    let workspace = cuda.device.scratch([bytes])?;
    launch(cuda, product, plan, Arg::Null, workspace.arg(0, Access::Write), w.rows)?;
    gemm_sum::add(cuda, product, plan.shares, &workspace)
}

/// Launches it to rows that are `y_stride` apart.
fn launch(cuda: &Cuda, product: &Product, plan: &GemmF32Plan, bias: Arg, to: Arg, y_stride: usize) -> Result<()> {
    let op = product.op;
    let w = product.weight();
    let y = product.y;
    let params = GemmF32Params {
        row_bytes: w.row_bytes as u64,
        y_stride: y_stride as u64,
        rows: word(op, "rows of X", y.rows())?,
        outputs: word(op, "outputs", w.rows)?,
        cols: word(op, "columns", w.cols)?,
        padding: 0,
    };
    let args = [w.arg(), product.exact()?, bias, to, Arg::params(&params)];
    let grid = [params.rows.div_ceil(plan.rows), params.outputs.div_ceil(plan.outputs), plan.shares as u32];
    cuda.device.launch(&Launch::new(Kernel::plain(plan.file(), plan.entry), grid, plan.threads, &args))
}

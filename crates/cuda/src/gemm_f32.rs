//! Products of f32 weights with many rows of f32 activations: the host side of `kernels/gemm_f32.cu`.

use super::Cuda;
use super::plan::GemmF32Plan;
use gristmill_gpu::product::{Product, word};
use gristmill_gpu::{Arg, Kernel, Launch, shared_struct};
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
    let (op, w, y) = (product.op, product.weight(), product.y);
    let params = GemmF32Params {
        row_bytes: w.row_bytes as u64,
        y_stride: y.layout().stride() as u64,
        rows: word(op, "rows of X", y.rows())?,
        outputs: word(op, "outputs", w.rows)?,
        cols: word(op, "columns", w.cols)?,
        padding: 0,
    };
    let (x, [bias, _]) = (product.exact()?, product.bias_args());
    let args = [w.arg(), x, bias, Arg::write(y), Arg::params(&params)];
    let grid = [params.rows.div_ceil(plan.rows), params.outputs.div_ceil(plan.outputs), 1];
    cuda.device.launch(&Launch::new(Kernel::plain(plan.file(), plan.entry), grid, plan.threads, &args))
}

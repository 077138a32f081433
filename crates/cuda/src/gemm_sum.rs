//! Sums of the shares of a product's columns: the host side of `kernels/gemm_sum.cu`.

use super::Cuda;
use gristmill_gpu::epilogue::EpilogueParams;
use gristmill_gpu::product::{Product, word};
use gristmill_gpu::{Access, Arg, Kernel, Launch, Scratch, Unit, shared_struct};
use gristmill_kernels::error::Result;

const FILE: &str = "gemm_sum.cu";
/// Threads of a block, each with four outputs: as in the kernel's source.
const THREADS: u32 = 128;

shared_struct! {
    pub(super) struct GemmSumParams {
        y_stride: u64,
        rows: u32,
        outputs: u32,
        shares: u32,
        // Whether shares allow 16-byte loads.
        aligned: u32,
        epilogue: EpilogueParams,
        padding: u32,
    }
}

/// What may be compiled.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    [Unit::new(FILE, &[])].into_iter()
}

/// Adds the shares, which are the workspace's first slice, the bias and, as the product's epilogue says, Y.
pub(super) fn add<const N: usize>(cuda: &Cuda, product: &Product, shares: usize, workspace: &Scratch<N>) -> Result<()> {
    let Product { op, y, epilogue, .. } = *product;
    let params = GemmSumParams {
        y_stride: y.layout().stride() as u64,
        rows: word(op, "rows of Y", y.rows())?,
        outputs: word(op, "outputs", product.weight().rows)?,
        shares: shares as u32,
        aligned: product.weight().rows.is_multiple_of(4).into(),
        epilogue: epilogue.into(),
        padding: 0,
    };
    let [bias, _] = product.bias_args();
    let args = [workspace.arg(0, Access::Read), bias, product.y_arg(), Arg::params(&params)];
    let grid = [params.outputs.div_ceil(4 * THREADS), params.rows, 1];
    cuda.device.launch(&Launch::new(Kernel::plain(FILE, "gemm_sum"), grid, THREADS, &args))
}

//! Sums of the shares of a product's columns: the host side of `kernels/gemm_sum.cu`.

use super::Cuda;
use gristmill_gpu::epilogue::EpilogueParams;
use gristmill_gpu::product::{Product, word};
use gristmill_gpu::{Access, Arg, Kernel, Launch, Scratch, Unit, shared_struct};
use gristmill_kernels::error::Result;

const FILE: &str = "gemm_sum.cu";
/// Threads of a block, each with four outputs: as in the kernel's source.
const THREADS: u32 = 128;
/// The most rows of Y: blocks along the grid's y.
const MOST_ROWS: usize = 65_535;
/// Bytes that the shares of a product may take.
const MOST_BYTES: usize = 16 << 20;

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

/// Bytes of this number of shares of a product, each with all of Y; `None` if these are more than may be.
fn bytes(product: &Product, shares: usize) -> Option<usize> {
    let (rows, outputs) = (product.y.rows(), product.weight().rows);
    let bytes = [rows, outputs, shares, size_of::<f32>()].into_iter().try_fold(1, usize::checked_mul)?;
    (rows <= MOST_ROWS && bytes <= MOST_BYTES).then_some(bytes)
}

/// Whether the kernel can add this number of shares of a product.
pub(super) fn serves(product: &Product, shares: usize) -> bool {
    bytes(product, shares).is_some()
}

/// Workspace for the shares of a product that [`serves`] admits.
pub(super) fn workspace(cuda: &Cuda, product: &Product, shares: usize) -> Result<Scratch<1>> {
    cuda.device.scratch([bytes(product, shares).unwrap_or(MOST_BYTES)])
}

/// Adds the shares, the bias and, as the product's epilogue says, Y.
pub(super) fn add(cuda: &Cuda, product: &Product, shares: usize, workspace: &Scratch<1>) -> Result<()> {
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

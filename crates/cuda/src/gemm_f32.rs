//! Products of f32 weights with many rows of f32 activations: the host side of `kernels/gemm_f32.cu`.

use super::Cuda;
use gristmill_gpu::Unit;
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::product::{Product, RowSelection, word};
use gristmill_gpu::{Arg, Kernel, Launch, shared_struct};
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;

const FILE: &str = "gemm_f32.cu";
/// Rows of X from which on this is faster than `gemv.cu`, which reads all weights for every four.
const FEWEST: usize = 5;

/// A kernel, and what it is launched with: as in its source.
pub(super) struct GemmF32Variant {
    entry: &'static str,
    /// Rows of X from which on it is the fastest.
    fewest: usize,
    /// Rows and outputs of a block, and its threads.
    rows: usize,
    outputs: usize,
    threads: u32,
}

const VARIANTS: [GemmF32Variant; 2] = [
    GemmF32Variant { entry: "gemm_f32", fewest: 256, rows: 32, outputs: 32, threads: 128 },
    GemmF32Variant { entry: "gemm_f32_few", fewest: FEWEST, rows: 8, outputs: 4, threads: 256 },
];
/// Blocks along the grid's y.
const GRID_Y: usize = 65_535;

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

/// Units that may be compiled.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    [Unit::new(FILE, &[])].into_iter()
}

/// The kernel for a product, if there is one.
pub(super) fn form(product: &Product) -> Option<&'static GemmF32Variant> {
    let (w, plain) = (product.weight(), matches!(product.epilogue, ProductEpilogue::Store));
    // Rows are read by four floats.
    let all = plain && w.format == Format::F32 && w.cols.is_multiple_of(4) && matches!(product.rows, RowSelection::All);
    let fits = |form: &&GemmF32Variant| product.y.rows() >= form.fewest && w.rows.div_ceil(form.outputs) <= GRID_Y;
    VARIANTS.iter().find(fits).filter(|_| all)
}

/// Launches a product by the kernel that is for it.
pub(super) fn multiply(cuda: &Cuda, product: &Product, form: &GemmF32Variant) -> Result<()> {
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
    let grid = [params.rows.div_ceil(form.rows as u32), params.outputs.div_ceil(form.outputs as u32), 1];
    cuda.device.launch(&Launch::new(Kernel::plain(FILE, form.entry), grid, form.threads, &args))
}

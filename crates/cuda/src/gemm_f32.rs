//! Products of f32 weights with many rows of f32 activations: the host side of `kernels/gemm_f32.cu`.

use super::Cuda;
use gristmill_gpu::Unit;
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::product::{Product, RowSelection, word};
use gristmill_gpu::{Access, Arg, Kernel, Launch, shared_struct};
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;

const FILE: &str = "gemm_f32.cu";
/// Rows of X from which on this is faster than `gemv.cu`, which reads all weights for every four. With few rows there
/// are few blocks: for 128 experts, steps of 16 to 128 rows were a quarter slower on an H200 with this kernel.
const FEWEST: usize = 256;
/// Rows and outputs of a block, and its threads: as in the kernel's source.
const ROWS: usize = 16;
const OUTPUTS: usize = 32;
const THREADS: u32 = 128;
/// Blocks along the grid's y.
const GRID_Y: usize = 65_535;

shared_struct! {
    pub(super) struct GemmF32Params in "gemm_f32.cu" {
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

/// Whether the kernel is for a product.
pub(super) fn serves(product: &Product) -> bool {
    let (w, plain) = (product.weight(), matches!(product.epilogue, ProductEpilogue::Store));
    // Rows are read by four floats.
    let whole = w.cols.is_multiple_of(4) && w.rows.div_ceil(OUTPUTS) <= GRID_Y;
    let all = matches!(product.rows, RowSelection::All) && product.y.rows() >= FEWEST;
    plain && w.format == Format::F32 && all && whole
}

/// Launches a product.
pub(super) fn multiply(cuda: &Cuda, product: &Product) -> Result<()> {
    let (op, w, y) = (product.op, product.weight(), product.y);
    let params = GemmF32Params {
        row_bytes: w.row_bytes as u64,
        y_stride: y.layout().stride() as u64,
        rows: word(op, "rows of X", y.rows())?,
        outputs: word(op, "outputs", w.rows)?,
        cols: word(op, "columns", w.cols)?,
        padding: 0,
    };
    let (x, [bias, _]) = (product.x()?.exact(Access::Read), product.bias_args());
    let args = [w.arg(), x, bias, Arg::write(y), Arg::params(&params)];
    let grid = [params.rows.div_ceil(ROWS as u32), params.outputs.div_ceil(OUTPUTS as u32), 1];
    cuda.device.launch(&Launch::new(Kernel::plain(FILE, "gemm_f32"), grid, THREADS, &args))
}

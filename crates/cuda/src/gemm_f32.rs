//! Products of f32 weights with many rows of f32 activations: the host side of `kernels/gemm_f32.cu`.

use super::units::Unit;
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::{Bias, RowSelection, bias_arg, word};
use gristmill_gpu::shared_struct;
use gristmill_gpu::storage::GpuAct;
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;

use super::Cuda;
use gristmill_gpu::{Access, Arg, Kernel, Launch};
use gristmill_kernels::tensor::ViewMut;

const FILE: &str = "gemm_f32.cu";
/// Rows of X from which on this is faster than `gemv.cu`, which reads all weights for every four. With few rows there are few
/// blocks: for 128 experts, steps of 16 to 128 rows were a quarter slower on an H200 with this kernel.
const FEWEST: usize = 256;
/// Rows and outputs of a block, and its threads: as in the kernel's text.
const ROWS: usize = 16;
const OUTPUTS: usize = 32;
const THREADS: u32 = 128;
/// Blocks along the grid's y.
const GRID_Y: usize = 65_535;

shared_struct! {
    #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(super) struct GemmF32Params in "gemm_f32.cu" {
        row_bytes: u64,
        y_stride: u64,
        rows: u32,
        outputs: u32,
        cols: u32,
        padding: u32,
    }
}

/// What may be compiled.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    [Unit { file: FILE, defines: Vec::new() }].into_iter()
}

/// Whether a product is one for this kernel.
pub(super) fn serves(w: &PlaneRows, which: RowSelection, rows: usize) -> bool {
    // Rows are read by four floats.
    let whole = w.cols.is_multiple_of(4) && w.rows.div_ceil(OUTPUTS) <= GRID_Y;
    w.format == Format::F32 && matches!(which, RowSelection::All) && whole && rows >= FEWEST
}

/// Y = X · Wᵀ + bias.
pub(super) fn matmul(
    cuda: &Cuda,
    op: &'static str,
    w: &PlaneRows,
    x: &Act,
    bias: Option<Bias>,
    y: &ViewMut<f32>,
) -> Result<()> {
    let params = GemmF32Params {
        row_bytes: w.row_bytes as u64,
        y_stride: y.layout().stride() as u64,
        rows: word(op, "rows of X", y.rows())?,
        outputs: word(op, "outputs", w.rows)?,
        cols: word(op, "columns", w.cols)?,
        padding: 0,
    };
    let x = x.storage::<GpuAct>(op)?.exact(Access::Read);
    let args = [w.arg(), x, bias_arg(bias), Arg::write(y), Arg::params(&params)];
    cuda.device.launch(&Launch {
        kernel: Kernel { file: FILE, entry: "gemm_f32", defines: &[] },
        grid: [params.rows.div_ceil(ROWS as u32), params.outputs.div_ceil(OUTPUTS as u32), 1],
        block: THREADS,
        shared: 0,
        overlap: true,
        args: &args,
    })
}

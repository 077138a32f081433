//! Products of weights with many rows of activations: the host side of `kernels/gemm.metal`.

use super::GRIDS;
use super::matmul::Product;
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::{RowSelection, word};
use gristmill_gpu::region_of;
use gristmill_gpu::{Arg, Device, Kernel, Launch, Unit};
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;

const FILE: &str = "gemm.metal";
/// Threads of a block.
const BLOCK: u32 = 128;
/// A tile: outputs, of `gate_up` half as many, and rows of X.
const TILE_OUTPUTS: usize = 64;
pub(super) const TILE_ROWS: usize = 32;
/// Rows of X that dot products serve better: they read weights for every four of them, tiles compute eight at once.
/// Not measured.
const FEW: usize = 8;
/// Pairs for each expert that dot products serve better, in the mean. Not measured.
const FEW_PAIRS: usize = 4;

/// Every compilation of the text.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    Format::ALL.iter().map(|format| Unit { file: FILE, defines: vec![("FORMAT", format.name().to_owned())] })
}

/// Whether a product is one for these kernels. Sums are taken in another order than in `gemv.metal`, which exact activations
/// may show with float weights in F32 alone (`gristmill_kernels::ops`).
pub(super) fn serves(w: &PlaneRows, x: &Act, which: RowSelection, rows: usize) -> bool {
    let fast = x.precision() == Precision::Fast;
    match which {
        RowSelection::Pairs { groups, .. } => fast && rows >= FEW_PAIRS * groups.experts(),
        _ => (fast || w.format == Format::F32) && rows > FEW,
    }
}

/// A block for each tile: of experts as many as grouping has found, by a grid that it has written.
pub(super) fn launch(
    device: &Device,
    op: &'static str,
    product: Product,
    run: &[PlaneRows],
    which: RowSelection,
    rows: usize,
    args: &[Arg],
) -> Result<()> {
    let (entry, tile_outputs) = match product {
        Product::Matmul => ("matmul", TILE_OUTPUTS),
        Product::GateUp => ("gate_up", TILE_OUTPUTS / 2),
    };
    let defines = [("FORMAT", run[0].format.name())];
    let outputs: usize = run.iter().map(|part| part.rows).sum();
    let all = outputs.div_ceil(tile_outputs);
    let (blocks, grid) = match which {
        // A block takes several tiles where there are more than grids.
        RowSelection::Pairs { groups, .. } => (all.div_ceil(all.div_ceil(GRIDS)), region_of(groups.tile_count())),
        _ => (all, None),
    };
    let launch = Launch {
        kernel: Kernel { file: FILE, entry, defines: &defines },
        grid: [word(op, "blocks of outputs", blocks)?, which.tasks(run[0].experts, rows, TILE_ROWS), 1],
        block: BLOCK,
        shared: 0,
        overlap: true,
        args,
    };
    match grid {
        Some(grid) => device.launch_indirect(&launch, grid, (1 + 3 * (blocks - 1)) * size_of::<u32>()),
        None => device.launch(&launch),
    }
}

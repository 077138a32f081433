//! Products of weights with many rows of activations: the host side of `kernels/gemm.metal`.

use super::GRIDS;
use gristmill_gpu::product::{Product, RowSelection, word};
use gristmill_gpu::{Arg, Device, Kernel, Launch, Unit, region_of};
use gristmill_kernels::act::Precision;
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

pub(super) fn units() -> impl Iterator<Item = Unit> {
    Unit::by_format(FILE)
}

/// Whether these kernels are for a product. Sums are taken in another order than in `gemv.metal`, which exact
/// activations may show with float weights in F32 alone (`gristmill_kernels::ops`).
pub(super) fn serves(product: &Product) -> bool {
    let (rows, fast) = (product.y.rows(), product.x.precision() == Precision::Fast);
    match product.rows {
        RowSelection::Pairs { groups, .. } => fast && rows >= FEW_PAIRS * groups.experts(),
        _ => (fast || product.format() == Format::F32) && rows > FEW,
    }
}

/// A block for each tile; of experts as many as grouping has found, by a grid that grouping has written.
pub(super) fn launch(device: &Device, product: &Product, args: &[Arg]) -> Result<()> {
    let (entry, tile_outputs) =
        if product.up.is_none() { ("matmul", TILE_OUTPUTS) } else { ("gate_up", TILE_OUTPUTS / 2) };
    let all = product.outputs().div_ceil(tile_outputs);
    let (blocks, grid) = match product.rows {
        // A block takes several tiles where there are more than grids.
        RowSelection::Pairs { groups, .. } => (all.div_ceil(all.div_ceil(GRIDS)), region_of(groups.tile_count())),
        _ => (all, None),
    };
    let kernel = Kernel { file: FILE, entry, defines: &[("FORMAT", product.format().name())] };
    let most = [word(product.op, "blocks of outputs", blocks)?, product.tasks(TILE_ROWS), 1];
    let launch = Launch::new(kernel, most, BLOCK, args);
    match grid {
        Some(grid) => device.launch_indirect(&launch, grid, (1 + 3 * (blocks - 1)) * size_of::<u32>()),
        None => device.launch(&launch),
    }
}

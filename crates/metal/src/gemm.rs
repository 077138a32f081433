//! Products of weights with many activation rows: the host side of `kernels/gemm.metal`.

use super::GRIDS;
use gristmill_gpu::product::{Product, RowSelection, word};
use gristmill_gpu::{Arg, Device, Kernel, Launch, Unit, region_of};
use gristmill_kernels::act::Precision;
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;

const FILE: &str = "gemm.metal";
/// Threads per block.
const BLOCK: u32 = 128;
/// A tile: outputs (half as many for `gate_up`) and rows of X.
const TILE_OUTPUTS: usize = 64;
pub(super) const TILE_ROWS: usize = 32;
/// Up to this number of rows of X, dot products are faster. They read weights once per four rows; tiles compute eight
/// rows at once. Not measured.
const FEW: usize = 8;
/// Up to this mean number of pairs per expert, dot products are faster. Not measured.
const FEW_PAIRS: usize = 4;

pub(super) fn units() -> impl Iterator<Item = Unit> {
    Unit::by_format(FILE)
}

/// Whether these kernels compute a product. Their order of summation differs from `gemv.metal`. With exact activations,
/// only float weights in F32 may show that (`gristmill_kernels::ops`).
pub(super) fn serves(product: &Product) -> bool {
    let rows = product.y.rows();
    let fast = product.x.precision() == Precision::Fast;
    match product.rows {
        RowSelection::Pairs { groups, .. } => fast && rows >= FEW_PAIRS * groups.experts(),
        _ => (fast || product.format() == Format::F32) && rows > FEW,
    }
}

/// One block per tile. For experts, grouping has written the number of tiles as an indirect grid.
pub(super) fn launch(device: &Device, product: &Product, args: &[Arg]) -> Result<()> {
    let (entry, tile_outputs) =
        if product.up.is_none() { ("matmul", TILE_OUTPUTS) } else { ("gate_up", TILE_OUTPUTS / 2) };
    let all = product.outputs().div_ceil(tile_outputs);
    let (blocks, grid) = match product.rows {
        // If there are more output tiles than grids, a block computes several.
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

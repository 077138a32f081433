//! Products of weights with many rows of int8 activations, on tensor cores: the host side of
//! `kernels/gemm_int8_tile.cu`, which adds in the order of `gemm_int8.cu` with the same roundings.

use super::Cuda;
use super::gemm_int8::{GemmInt8Variant, busy_blocks, defines};
use gristmill_gpu::Unit;
use gristmill_gpu::product::{Product, RowSelection};
use gristmill_kernels::format::Format;

const FILE: &str = "gemm_int8_tile.cu";
/// Rows of X in a tile, and tiles that are multiplied at once: `ROW_TILES` in the source, most first.
const TILE: usize = 8;
const ROW_TILES: [(usize, &str); 2] = [(8, "8"), (4, "4")];
/// Warps of a block, and the rows of weights of each.
const WARPS: usize = 4;
const WEIGHT_ROWS: usize = 32;
/// Steps of X in shared memory, with this number of bytes of a row at most.
const STAGES: usize = 2;
const STAGE_ROW: usize = 192;
/// Bytes of the scales of a warp's rows of weights in a step, at most.
const WARP_SCALES: usize = 2048;
/// Bytes of the sums of a row of X.
const SUMS_ROW: usize = WARPS * WEIGHT_ROWS * size_of::<f32>();
/// Shared memory of fixed size.
const FIXED: usize = 1024;

/// Rows of X, and pairs for each of the experts, that are many. Above both ranges of `gemm_int8.rs`, so that only a
/// backend which takes these families for any number of rows comes here.
const MANY_ROWS: usize = 32;
pub(super) const MANY_PAIRS: usize = 16;

pub(super) fn units(format: Format, gated: bool) -> impl Iterator<Item = Unit> {
    ROW_TILES.into_iter().map(move |(_, tiles)| Unit::new(FILE, &defines(format, gated, tiles)))
}

/// The form for a product of many rows, whose sums are those of this number of warps that share columns.
pub(super) fn form(cuda: &Cuda, product: &Product, sharing: usize) -> Option<GemmInt8Variant> {
    let properties = cuda.device.gpu().properties();
    let (rows, many) = match product.rows {
        RowSelection::Pairs { groups, .. } => (product.y.rows() / groups.experts().max(1), MANY_PAIRS),
        _ => (product.y.rows(), MANY_ROWS),
    };
    if rows < many {
        return None;
    }
    let outputs = WARPS * WEIGHT_ROWS / if product.up.is_some() { 2 } else { 1 };
    let shared = |tiles: usize| TILE * tiles * (STAGES * STAGE_ROW + SUMS_ROW) + WARPS * WARP_SCALES;
    let fits = |&(tiles, _): &(usize, &str)| {
        // A block on every second multiprocessor is as fast as the other kernel on all.
        let busy = 2 * busy_blocks(product, outputs, TILE * tiles) >= properties.multiprocessors as usize;
        busy && shared(tiles) + FIXED <= properties.shared_bytes as usize
    };
    // Tiles that an expert's rows do not fill cost registers.
    let (tiles, row_tiles) = ROW_TILES.into_iter().filter(|(tiles, _)| *tiles == 4 || rows >= 4 * TILE).find(fits)?;
    Some(GemmInt8Variant {
        file: FILE,
        row_tiles,
        outputs,
        rows: TILE * tiles,
        warps: WARPS,
        shared: shared(tiles),
        cut: sharing,
    })
}

//! Tiles of `gemm_int8_tile.cu`, for many rows.

use super::card::Card;
use super::int8::{self, Int8Plan, TILE, busy_blocks, sharing_warps};
use super::shape::Shape;
use gristmill_gpu::Unit;

const FILE: &str = "gemm_int8_tile.cu";
/// Tiles that are multiplied at once, most first: `ROW_TILES` in the source.
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

/// Every unit of a plan.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    int8::units(FILE, ROW_TILES)
}

/// The plan for a product of many rows, if this is one.
pub(super) fn plan(card: &Card, shape: &Shape) -> Option<Int8Plan> {
    let (rows, many) = match shape.problem.experts {
        Some(experts) => (shape.problem.rows / experts.max(1), card.thresholds().int8_tile_pairs),
        None => (shape.problem.rows, card.thresholds().int8_tile_rows),
    };
    if rows < many {
        return None;
    }
    let outputs = WARPS * WEIGHT_ROWS / if shape.is_gated { 2 } else { 1 };
    let shared = |tiles: usize| TILE * tiles * (STAGES * STAGE_ROW + SUMS_ROW) + WARPS * WARP_SCALES;
    let fits = |&(tiles, _): &(usize, &str)| {
        // A block on every second multiprocessor is as fast as the other kernel on all.
        let busy = 2 * busy_blocks(shape, outputs, TILE * tiles) >= card.multiprocessors;
        busy && shared(tiles) + FIXED <= card.shared_bytes
    };
    // Tiles that an expert's rows do not fill cost registers.
    let mut filled = ROW_TILES.into_iter().filter(|(tiles, _)| *tiles == 4 || rows >= 4 * TILE);
    let (tiles, row_tiles) = filled.find(fits)?;
    Some(Int8Plan {
        file: FILE,
        row_tiles,
        is_gated: shape.is_gated,
        outputs,
        rows: TILE * tiles,
        warps: WARPS,
        shared: shared(tiles),
        cut: sharing_warps(shape),
    })
}

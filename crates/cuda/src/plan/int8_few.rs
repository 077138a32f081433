//! Tiles and blocks of `gemm_int8.cu`, for a few rows.

use super::card::Card;
use super::int8::{self, COLUMNS, Int8Plan, TILE, busy_blocks, sharing_warps};
use super::shape::Shape;
use gristmill_gpu::Unit;
use std::iter;

const FILE: &str = "gemm_int8.cu";
/// Tiles that are multiplied at once: `ROW_TILES` in the source.
const ROW_TILES: [(usize, &str); 2] = [(1, "1"), (2, "2")];
/// Outputs that are multiplied at once, and the bytes of their sums for a tile.
const OUTPUTS: usize = 16;
const SUMS_BYTES: usize = OUTPUTS * TILE * size_of::<f32>();
/// Bytes of `WarpScratch` in the kernel source: codes and scales; and columns of a tile.
const WARP_SCRATCH: usize = OUTPUTS * COLUMNS + (COLUMNS / 16) * (OUTPUTS + 1) * 2 * size_of::<f32>();
const TILE_SCRATCH: usize = (COLUMNS / 16) * TILE * 2 * size_of::<f32>();
/// Rows of a tile of experts on average, because few experts have most of the pairs.
const USUAL_TILE_ROWS: usize = 4;

/// Every unit of a plan.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    int8::units(FILE, ROW_TILES)
}

pub(super) fn plan(card: &Card, shape: &Shape) -> Int8Plan {
    let warps = sharing_warps(shape);
    let (tiles, row_tiles) = ROW_TILES[usize::from(two_tiles(card, shape))];
    let slabs = slabs(card, shape, tiles);
    let sums = (1 + usize::from(shape.is_gated)) * slabs * SUMS_BYTES;
    Int8Plan {
        file: FILE,
        row_tiles,
        is_gated: shape.is_gated,
        outputs: OUTPUTS * slabs,
        rows: TILE * tiles,
        warps,
        shared: warps * (WARP_SCRATCH + tiles * (TILE_SCRATCH + sums)),
        cut: slabs,
    }
}

/// Whether a block multiplies two tiles of rows with the weights that it unpacks: where there are rows for both, and
/// blocks enough to keep the device busy.
fn two_tiles(card: &Card, shape: &Shape) -> bool {
    let enough = match shape.problem.experts {
        Some(experts) => shape.problem.rows > card.thresholds().two_tiles_pairs * experts,
        None => shape.problem.rows > TILE,
    };
    enough && blocks(shape, 2, least_slabs(shape)) >= wanted_blocks(card)
}

/// Times 16 outputs of a block: as many as there are sums for in shared memory, if that makes blocks enough to keep
/// the device busy. Of gate and up an even number, since 32 outputs are rounded together.
fn slabs(card: &Card, shape: &Shape, tiles: usize) -> usize {
    let most = 4 * 2 / tiles;
    let least = least_slabs(shape);
    let most = if shape.is_gated { most / 2 } else { most };
    let most = if is_short(card, shape, tiles, most) { least.max(most / 2) } else { most };
    let enough = |&slabs: &usize| blocks(shape, tiles, slabs) >= wanted_blocks(card);
    iter::successors(Some(most), |slabs| (slabs / 2 >= least).then_some(slabs / 2)).find(enough).unwrap_or(least)
}

fn least_slabs(shape: &Shape) -> usize {
    if shape.is_gated { 2 } else { 1 }
}

/// Blocks that are busy at once.
fn blocks(shape: &Shape, tiles: usize, slabs: usize) -> usize {
    busy_blocks(shape, OUTPUTS * slabs, TILE * tiles)
}

/// Blocks that keep a device busy.
fn wanted_blocks(card: &Card) -> usize {
    card.thresholds().int8_blocks * card.multiprocessors
}

/// Whether experts have so few blocks that the device is mostly idle in the last round.
fn is_short(card: &Card, shape: &Shape, tiles: usize, slabs: usize) -> bool {
    let of_rows = shape.problem.rows.div_ceil(USUAL_TILE_ROWS * tiles);
    let blocks = shape.outputs.div_ceil(OUTPUTS * slabs).saturating_mul(of_rows);
    shape.problem.experts.is_some() && blocks < card.thresholds().int8_expert_blocks * card.multiprocessors
}

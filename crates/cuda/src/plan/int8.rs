//! Tiles and blocks of `gemm_int8.cu`, for a few rows, and of `gemm_int8_tile.cu`, which adds in the same order with the
//! same roundings, for many.

use super::card::Card;
use super::shape::Shape;
use gristmill_gpu::Unit;
use gristmill_kernels::format::Format;

/// Rows of X in a tile of both kernels.
pub(super) const TILE: usize = 8;
/// Columns that a warp of `gemm_int8.cu` takes at once, and the most warps that share columns.
const COLUMNS: usize = 256;
const MOST_WARPS: usize = 4;

/// A launch of one of the kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Int8Plan {
    pub(crate) file: &'static str,
    /// `ROW_TILES` in the source.
    row_tiles: &'static str,
    is_gated: bool,
    /// Outputs of a block, and rows of X that it multiplies at once.
    pub(crate) outputs: usize,
    pub(crate) rows: usize,
    /// Warps of a block, and its bytes of shared memory.
    pub(crate) warps: usize,
    pub(crate) shared: usize,
    /// [`gristmill_gpu::product::ProductParams`]' `cut`.
    pub(crate) cut: usize,
}

impl Int8Plan {
    pub(super) fn new(card: &Card, shape: &Shape) -> Self {
        // The order of sums depends on the warps that share columns, and these on the weight alone.
        let sharing = shape.cols.div_ceil(COLUMNS).clamp(1, MOST_WARPS);
        large::plan(card, shape, sharing).unwrap_or_else(|| small::plan(card, shape, sharing))
    }

    /// The definitions for weights of a format.
    pub(crate) fn defines(&self, format: Format) -> [(&'static str, &'static str); 3] {
        defines(format, self.is_gated, self.row_tiles)
    }
}

fn defines(format: Format, is_gated: bool, row_tiles: &'static str) -> [(&'static str, &'static str); 3] {
    [("FORMAT", format.name()), ("GATED", if is_gated { "1" } else { "0" }), ("ROW_TILES", row_tiles)]
}

/// Every unit of a plan.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    let formats = Format::ALL.iter().filter(|format| !format.is_float());
    formats.flat_map(|&format| [(format, false), (format, true)]).flat_map(|(format, is_gated)| {
        let unit = |file, row_tiles| Unit::new(file, &defines(format, is_gated, row_tiles));
        let small = small::ROW_TILES.map(|(_, row_tiles)| unit(small::FILE, row_tiles));
        let large = large::ROW_TILES.map(|(_, row_tiles)| unit(large::FILE, row_tiles));
        small.into_iter().chain(large)
    })
}

/// Whether these kernels are the fastest for a product, if they can multiply it.
pub(super) fn serves(card: &Card, rows: usize, experts: Option<usize>) -> bool {
    match experts {
        Some(experts) => rows > 1 && serves_pairs(card, experts, rows),
        None => card.thresholds().int8_rows.contains(&rows),
    }
}

/// Whether these kernels are the fastest for this number of pairs.
pub(super) fn serves_pairs(card: &Card, experts: usize, pairs: usize) -> bool {
    let quarters = &card.thresholds().int8_quarter_pairs;
    (quarters.start * experts..quarters.end * experts).contains(&pairs.saturating_mul(4))
}

/// Blocks with this number of outputs and rows of X at once that are busy at a time.
fn busy_blocks(shape: &Shape, outputs: usize, rows: usize) -> usize {
    let busy = match shape.problem.experts {
        // An even router gives pairs to this number of experts.
        Some(_) => shape.matrices.min(shape.problem.rows),
        None => shape.problem.rows.div_ceil(rows),
    };
    shape.outputs.div_ceil(outputs).saturating_mul(busy)
}

/// `gemm_int8.cu`.
mod small {
    use super::*;

    pub(super) const FILE: &str = "gemm_int8.cu";
    /// Tiles that are multiplied at once: `ROW_TILES` in the source.
    pub(super) const ROW_TILES: [(usize, &str); 2] = [(1, "1"), (2, "2")];
    /// Outputs that are multiplied at once, and the bytes of their sums for a tile.
    const OUTPUTS: usize = 16;
    const SUMS_BYTES: usize = OUTPUTS * TILE * size_of::<f32>();
    /// Bytes of `WarpScratch` in the kernel source: codes and scales; and columns of a tile.
    const WARP_SCRATCH: usize = OUTPUTS * COLUMNS + (COLUMNS / 16) * (OUTPUTS + 1) * 2 * size_of::<f32>();
    const TILE_SCRATCH: usize = (COLUMNS / 16) * TILE * 2 * size_of::<f32>();
    /// Rows of a tile of experts on average, because few experts have most of the pairs.
    const USUAL_TILE_ROWS: usize = 4;

    pub(super) fn plan(card: &Card, shape: &Shape, warps: usize) -> Int8Plan {
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
        let (most, least) = (4 * 2 / tiles, least_slabs(shape));
        let most = if shape.is_gated { most / 2 } else { most };
        let most = if is_short(card, shape, tiles, most) { least.max(most / 2) } else { most };
        let enough = |&slabs: &usize| blocks(shape, tiles, slabs) >= wanted_blocks(card);
        std::iter::successors(Some(most), |slabs| (slabs / 2 >= least).then_some(slabs / 2))
            .find(enough)
            .unwrap_or(least)
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
}

/// `gemm_int8_tile.cu`.
mod large {
    use super::*;

    pub(super) const FILE: &str = "gemm_int8_tile.cu";
    /// Tiles that are multiplied at once, most first: `ROW_TILES` in the source.
    pub(super) const ROW_TILES: [(usize, &str); 2] = [(8, "8"), (4, "4")];
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

    /// The plan for a product of many rows, whose sums are those of this number of warps that share columns.
    pub(super) fn plan(card: &Card, shape: &Shape, sharing: usize) -> Option<Int8Plan> {
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
            cut: sharing,
        })
    }
}

//! What `gemm_int8.cu`, for a few rows (`int8_few.rs`), and `gemm_int8_tile.cu`, for many (`int8_many.rs`), have in common.
//! Both add in the same order with the same roundings.

use super::card::Card;
use super::shape::Shape;
use gristmill_gpu::Unit;
use gristmill_kernels::format::Format;

/// Rows of X in a tile of both kernels.
pub(super) const TILE: usize = 8;
/// Columns that a warp of `gemm_int8.cu` takes at once, and the most warps that share columns.
pub(super) const COLUMNS: usize = 256;
const MOST_WARPS: usize = 4;

/// A launch of one of the kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Int8Plan {
    pub(crate) file: &'static str,
    /// `ROW_TILES` in the source.
    pub(super) row_tiles: &'static str,
    pub(super) is_gated: bool,
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
    /// The definitions for weights of a format.
    pub(crate) fn defines(&self, format: Format) -> [(&'static str, &'static str); 3] {
        defines(format, self.is_gated, self.row_tiles)
    }
}

fn defines(format: Format, is_gated: bool, row_tiles: &'static str) -> [(&'static str, &'static str); 3] {
    [("FORMAT", format.name()), ("GATED", if is_gated { "1" } else { "0" }), ("ROW_TILES", row_tiles)]
}

/// The units of a file, with these `ROW_TILES`.
pub(super) fn units<const N: usize>(
    file: &'static str,
    tiles: [(usize, &'static str); N],
) -> impl Iterator<Item = Unit> {
    let formats = Format::ALL.iter().filter(|format| !format.is_float());
    let weights = formats.flat_map(|&format| [(format, false), (format, true)]);
    weights.flat_map(move |(format, is_gated)| {
        tiles.map(|(_, row_tiles)| Unit::new(file, &defines(format, is_gated, row_tiles)))
    })
}

/// Warps of `gemm_int8.cu` that share columns. The order of sums of both kernels depends on them, and they depend on the
/// weight alone.
pub(super) fn sharing_warps(shape: &Shape) -> usize {
    shape.cols.div_ceil(COLUMNS).clamp(1, MOST_WARPS)
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
pub(super) fn busy_blocks(shape: &Shape, outputs: usize, rows: usize) -> usize {
    let busy = match shape.problem.experts {
        // An even router gives pairs to this number of experts.
        Some(_) => shape.matrices.min(shape.problem.rows),
        None => shape.problem.rows.div_ceil(rows),
    };
    shape.outputs.div_ceil(outputs).saturating_mul(busy)
}

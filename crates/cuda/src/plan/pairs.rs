//! Tiles of experts' pairs, and tokens whose experts need no tiles.

use super::card::Card;
use super::cut::TILE_ROWS;
use super::int8::{TILE, serves_pairs};
use crate::family::Family;
use crate::options::Choice;

/// Rows of the smallest full tile of [`gristmill_kernels::groups::Groups`], which is for `gemm_int8.cu`.
pub(crate) const LEAST_TILE_ROWS: usize = TILE;
/// Rows of a full tile where `gemm.cu` multiplies 32 rows at once.
pub(super) const SMALL_TILE_ROWS: usize = 32;
/// Rows of a full tile for `gemm_wgmma.cu`.
const LARGE_TILE_ROWS: usize = 128;

/// See [`gristmill_gpu::Vendor::tile_rows`].
pub(crate) fn tile_rows(card: &Card, experts: usize, pairs: usize, rounded: bool) -> usize {
    if let Some(rows) = int8_tile_rows(card, experts, pairs).filter(|_| !rounded) {
        return rows;
    }
    let thresholds = card.thresholds();
    let wgmma = card.may(Family::Wgmma) && card.runs(Family::Wgmma);
    match pairs {
        _ if wgmma && pairs >= thresholds.large_tile_pairs * experts => LARGE_TILE_ROWS,
        _ if pairs < thresholds.small_tile_pairs * experts => SMALL_TILE_ROWS,
        _ => TILE_ROWS,
    }
}

/// The same, if `gemm_int8.cu` multiplies them: the rows that a block multiplies at once. In larger tiles, blocks
/// multiply them one after another, and the experts with the most rows finish last. On an H100, decode of 64 sequences of
/// Qwen3-30B-A3B (16 layers, Q4_K_M) takes 4.6 ms with tiles of 8 rows, and 5.7 with 64.
fn int8_tile_rows(card: &Card, experts: usize, pairs: usize) -> Option<usize> {
    let thresholds = card.thresholds();
    let few = match card.choice {
        Choice::Fastest => serves_pairs(card, experts, pairs),
        Choice::Deterministic | Choice::Family(Family::Int8) => pairs < thresholds.int8_tile_pairs * experts,
        Choice::Family(_) => false,
    };
    few.then_some(if pairs > thresholds.two_tiles_pairs * experts { 2 * TILE } else { TILE })
}

/// See [`gristmill_gpu::Vendor::few_tokens`].
pub(crate) fn few_tokens(card: &Card, experts: usize, top_k: usize) -> usize {
    let [few, more] = card.thresholds().few_tokens;
    if (2 * more).saturating_mul(top_k) <= experts { more } else { few }
}

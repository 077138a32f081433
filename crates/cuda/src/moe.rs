//! Tiles of expert pairs.

use super::Cuda;
use super::family::Family;

/// Rows of a full tile of [`gristmill_kernels::groups::Groups`]: of few pairs, and of many, which `wgmma` multiplies.
pub(crate) const TILE_ROWS: usize = 64;
pub(crate) const LARGE_TILE_ROWS: usize = 128;
/// Pairs for each expert from which the large tiles are used. For 128 experts in Q4_K on an H200, gate and up of 768 ×
/// 2,048 take 195 µs with the small tiles and 243 with the large ones for 32 pairs each, 506 and 390 for 128.
const MANY_PAIRS: usize = 48;

/// Rows of a full tile for this number of pairs.
pub(crate) fn tile_rows(cuda: &Cuda, experts: usize, pairs: usize) -> usize {
    let wgmma = cuda.may(Family::Wgmma) && Family::Wgmma.runs_on(cuda.device.gpu().properties().architecture);
    if wgmma && pairs >= MANY_PAIRS * experts { LARGE_TILE_ROWS } else { TILE_ROWS }
}

//! Tiles of expert pairs.

use super::Cuda;
use super::family::Family;
use super::gemm_int8;

/// Rows of the smallest full tile of [`gristmill_kernels::groups::Groups`], which is for `gemm_int8.cu`.
pub(crate) const LEAST_TILE_ROWS: usize = gemm_int8::TILE;
/// Rows of a full tile where `gemm.cu` multiplies 32 rows at once.
const SMALL_TILE_ROWS: usize = 32;
/// Pairs for each expert below which `gemm.cu` gets the small tiles: in larger tiles, the experts with the most rows
/// finish after all others.
const SMALL_TILE_PAIRS: usize = 16;
/// Rows of the largest full tile for `gemm.cu`.
pub(crate) const TILE_ROWS: usize = 64;
/// Rows of a full tile for `gemm_wgmma.cu`.
pub(crate) const LARGE_TILE_ROWS: usize = 128;
/// Pairs for each expert from which the large tiles are used. For 128 experts in Q4_K on an H200, gate and up of 768 ×
/// 2,048 take 195 µs with the small tiles and 243 with the large ones for 32 pairs each, 506 and 390 for 128.
const MANY_PAIRS: usize = 48;

/// See [`gristmill_gpu::Vendor::tile_rows`].
pub(crate) fn tile_rows(cuda: &Cuda, experts: usize, pairs: usize, rounded: bool) -> usize {
    if let Some(rows) = gemm_int8::tile_rows(cuda, experts, pairs).filter(|_| !rounded) {
        return rows;
    }
    let wgmma = cuda.may(Family::Wgmma) && Family::Wgmma.runs_on(cuda.device.gpu().properties().architecture);
    match pairs {
        _ if wgmma && pairs >= MANY_PAIRS * experts => LARGE_TILE_ROWS,
        _ if pairs < SMALL_TILE_PAIRS * experts => SMALL_TILE_ROWS,
        _ => TILE_ROWS,
    }
}

//! Products of weights with int8 activations, on tensor cores: the host side of `kernels/gemm_int8.cu`, for a few rows.
//! Of many rows `gemm_int8_tile.rs` has the same sums.

use super::family::{Family, Shape};
use super::gemm_int8_tile::{self, MANY_PAIRS};
use super::gemv::reads_int8;
use super::{Choice, Cuda};
use gristmill_gpu::Unit;
use gristmill_gpu::product::{Product, ProductParams, RowSelection};
use gristmill_gpu::{Arg, Kernel, Launch};
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;
use std::ops::RangeInclusive;

const FILE: &str = "gemm_int8.cu";
/// Rows of X in a tile, and tiles that are multiplied at once: `ROW_TILES` in the source.
pub(super) const TILE: usize = 8;
const ROW_TILES: [(usize, &str); 2] = [(1, "1"), (2, "2")];
/// Outputs that are multiplied at once, and the bytes of their sums for a tile.
const OUTPUTS: usize = 16;
const SUMS_BYTES: usize = OUTPUTS * TILE * size_of::<f32>();
/// Columns that a warp takes at once, and warps of a block.
const COLUMNS: usize = 256;
const MOST_WARPS: usize = 4;
/// Bytes of `WarpScratch` in the kernel source: codes and scales; and columns of a tile.
const WARP_SCRATCH: usize = OUTPUTS * COLUMNS + (COLUMNS / 16) * (OUTPUTS + 1) * 2 * size_of::<f32>();
const TILE_SCRATCH: usize = (COLUMNS / 16) * TILE * 2 * size_of::<f32>();
/// Blocks that a multiprocessor should have at least, so that its warps hide each other's waiting.
const BLOCKS_EACH: usize = 3;
/// Blocks of experts that a multiprocessor should have at least. They start in several rounds: with more blocks, a
/// smaller part of the device is idle in the last round.
const EXPERT_BLOCKS_EACH: usize = 8;
/// Rows of a tile of experts on average, because few experts have most of the pairs.
const USUAL_TILE_ROWS: usize = 4;

/// Rows of X, in which these kernels are the fastest. On an H200, with Q4_K, GEMV, this and `gemm.cu` take 5,120 ×
/// 2,048 in 6.0, 6.0 and 13 µs for two rows; 8.9, 6.4 and 13 for four; 22, 7.2 and 13 for eight; for 16 this 10.7 and
/// `gemm.cu` 13, for 32 both 14.
const ROWS: RangeInclusive<usize> = 3..=16;
/// The same of quarters of pairs for each of the experts, from and below. For 128 experts, gate and up of 768 × 2,048
/// took 42, 45 and 62 µs for half a pair each; 113, 89 and 123 for two; 199, 98 and 134 for four, with tiles of 64 rows.
/// With tiles of 8 and 32 rows and a router that prefers some experts, steps of Qwen3-30B-A3B (16 layers, an H100) take
/// 2.25 ms by GEMV and 2.01 by this for half a pair each, 4.56 by this and 4.73 by `gemm.cu` for four, 5.35 and 5.28 for
/// five. gpt-oss-20b (6 layers) takes 3.02 by this and 3.25 by `gemm.cu` for five.
const QUARTER_PAIRS: [usize; 2] = [2, 24];

/// Pairs for each expert above which two tiles of an expert's rows are multiplied at once: 7% of the experts of an even
/// router have more than 8 then.
const TWO_TILES_PAIRS: usize = 5;

pub(super) fn units() -> impl Iterator<Item = Unit> {
    let formats = Format::ALL.iter().filter(|format| !format.is_float());
    let forms = formats.flat_map(|&format| [(format, false), (format, true)]);
    forms.flat_map(|(format, gated)| {
        let few = ROW_TILES.map(|(_, tiles)| Unit::new(FILE, &defines(format, gated, tiles)));
        few.into_iter().chain(gemm_int8_tile::units(format, gated))
    })
}

pub(super) fn defines(format: Format, gated: bool, row_tiles: &'static str) -> [(&'static str, &'static str); 3] {
    [("FORMAT", format.name()), ("GATED", if gated { "1" } else { "0" }), ("ROW_TILES", row_tiles)]
}

/// Whether these kernels are for a product.
pub(super) fn serves(cuda: &Cuda, shape: &Shape) -> bool {
    let enough = match shape.experts {
        Some(experts) => shape.rows > 1 && serves_pairs(experts, shape.rows),
        None => ROWS.contains(&shape.rows),
    };
    cuda.device.gpu().properties().architecture >= 80 && reads_int8(shape.weight, shape.precision) && enough
}

/// Whether these kernels are the fastest for this number of pairs.
fn serves_pairs(experts: usize, pairs: usize) -> bool {
    let [from, below] = QUARTER_PAIRS.map(|quarters| quarters * experts);
    (from..below).contains(&pairs.saturating_mul(4))
}

/// Rows of a full tile of this number of pairs, if these kernels multiply them: those that a block multiplies at once.
/// In larger tiles, blocks multiply them one after another, and the experts with the most rows finish last. On an
/// H100, decode of 64 sequences of Qwen3-30B-A3B (16 layers, Q4_K_M) takes 4.6 ms with tiles of 8 rows, and 5.7 with
/// 64.
pub(super) fn tile_rows(cuda: &Cuda, experts: usize, pairs: usize) -> Option<usize> {
    let few = match cuda.options.choice {
        Choice::Fastest => serves_pairs(experts, pairs),
        Choice::Deterministic | Choice::Family(Family::Int8) => pairs < MANY_PAIRS * experts,
        Choice::Family(_) => false,
    };
    few.then_some(if pairs > TWO_TILES_PAIRS * experts { 2 * TILE } else { TILE })
}

/// A kernel, and how it cuts the work.
pub(super) struct GemmInt8Variant {
    pub(super) file: &'static str,
    pub(super) row_tiles: &'static str,
    /// Outputs of a block, and rows of X that it multiplies at once.
    pub(super) outputs: usize,
    pub(super) rows: usize,
    /// Warps of a block, and its bytes of shared memory.
    pub(super) warps: usize,
    pub(super) shared: usize,
    /// [`ProductParams`]' `cut`.
    pub(super) cut: usize,
}

/// Launches a product.
pub(super) fn multiply(cuda: &Cuda, product: &Product) -> Result<()> {
    let (w, gated) = (product.weight(), product.up.is_some());
    // The order of sums depends on the warps that share columns, and these on the weight alone.
    let warps = w.cols.div_ceil(COLUMNS).clamp(1, MOST_WARPS);
    let form = gemm_int8_tile::form(cuda, product, warps).unwrap_or_else(|| few_rows(cuda, product, warps));
    let params = ProductParams::new(product, form.cut as u32)?;
    let [ids, pairs, tiles, tile_count] = product.rows.args();
    let ([bias, up_bias], [y, exact, int8, bf16]) = (product.bias_args(), product.output_args());
    let (weight, up, x) = (w.arg(), product.up_arg(), product.int8()?);
    let (flag, params) = (cuda.device.flag(), Arg::params(&params));
    let args = [weight, up, x, ids, pairs, tiles, tile_count, bias, up_bias, y, exact, int8, bf16, flag, params];
    let grid = [product.output_blocks(form.outputs)?, product.tasks(form.rows), 1];
    let (entry, defines) = (form.file.trim_end_matches(".cu"), defines(w.format, gated, form.row_tiles));
    let kernel = Kernel { file: form.file, entry, defines: &defines };
    let launch = Launch::new(kernel, grid, 32 * form.warps as u32, &args);
    cuda.device.launch(&Launch { shared: form.shared as u32, ..launch })
}

/// The form for few rows.
fn few_rows(cuda: &Cuda, product: &Product, warps: usize) -> GemmInt8Variant {
    let (tiles, row_tiles) = ROW_TILES[usize::from(two_tiles(cuda, product))];
    let slabs = slabs(cuda, product, tiles);
    let sums = (1 + usize::from(product.up.is_some())) * slabs * SUMS_BYTES;
    let shared = warps * (WARP_SCRATCH + tiles * (TILE_SCRATCH + sums));
    GemmInt8Variant { file: FILE, row_tiles, outputs: OUTPUTS * slabs, rows: TILE * tiles, warps, shared, cut: slabs }
}

/// Whether a block multiplies two tiles of rows with the weights that it unpacks: where there are rows for both, and
/// blocks enough to keep the device busy. On an H100, decode of 9 to 16 sequences of Qwen3-30B-A3B in Q4_K_M is 1.2%
/// faster so, and of 81 to 96 2.7%; where blocks are few two tiles take up to 4% longer, and for experts of 8 pairs
/// each 4%.
fn two_tiles(cuda: &Cuda, product: &Product) -> bool {
    let y_rows = product.y.rows();
    let enough = match product.rows {
        RowSelection::Pairs { groups, .. } => y_rows > TWO_TILES_PAIRS * groups.experts(),
        _ => y_rows > TILE,
    };
    enough && blocks(product, 2, least_slabs(product)) >= wanted_blocks(cuda, BLOCKS_EACH)
}

/// Times 16 outputs of a block: as many as there are sums for in shared memory, if that makes blocks enough to keep the
/// device busy. Of gate and up an even number, since 32 outputs are rounded together.
fn slabs(cuda: &Cuda, product: &Product, row_tiles: usize) -> usize {
    let (most, least) = (4 * 2 / row_tiles, least_slabs(product));
    let most = if product.up.is_some() { most / 2 } else { most };
    let most = if is_short(cuda, product, row_tiles, most) { least.max(most / 2) } else { most };
    let enough = |&slabs: &usize| blocks(product, row_tiles, slabs) >= wanted_blocks(cuda, BLOCKS_EACH);
    std::iter::successors(Some(most), |slabs| (slabs / 2 >= least).then_some(slabs / 2)).find(enough).unwrap_or(least)
}

fn least_slabs(product: &Product) -> usize {
    if product.up.is_some() { 2 } else { 1 }
}

/// Blocks that are busy at once.
fn blocks(product: &Product, row_tiles: usize, slabs: usize) -> usize {
    busy_blocks(product, OUTPUTS * slabs, TILE * row_tiles)
}

/// Whether experts have so few blocks that the device is mostly idle in the last round.
fn is_short(cuda: &Cuda, product: &Product, row_tiles: usize, slabs: usize) -> bool {
    let tiles = product.y.rows().div_ceil(USUAL_TILE_ROWS * row_tiles);
    let blocks = product.weight().rows.div_ceil(OUTPUTS * slabs).saturating_mul(tiles);
    matches!(product.rows, RowSelection::Pairs { .. }) && blocks < wanted_blocks(cuda, EXPERT_BLOCKS_EACH)
}

/// The same of blocks with this number of outputs and rows of X at once.
pub(super) fn busy_blocks(product: &Product, outputs: usize, rows: usize) -> usize {
    let (w, y_rows) = (product.weight(), product.y.rows());
    let busy = match product.rows {
        // An even router gives pairs to this number of experts.
        RowSelection::Pairs { .. } => w.experts.min(y_rows),
        _ => y_rows.div_ceil(rows),
    };
    w.rows.div_ceil(outputs).saturating_mul(busy)
}

/// Blocks that keep a device busy, by the number for each multiprocessor.
fn wanted_blocks(cuda: &Cuda, each: usize) -> usize {
    each * cuda.device.gpu().properties().multiprocessors.max(1) as usize
}

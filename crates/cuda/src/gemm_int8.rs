//! Products of weights with a few rows of activations, on tensor cores: the host side of `kernels/gemm_int8.cu`.

use super::Cuda;
use super::gemv::reads_int8;
use gristmill_gpu::Unit;
use gristmill_gpu::product::{Product, ProductParams, RowSelection};
use gristmill_gpu::{Access, Arg, Kernel, Launch};
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;
use std::ops::RangeInclusive;

const FILE: &str = "gemm_int8.cu";
/// Rows of X that are multiplied at once: `TOKENS` in the source.
const AT_ONCE: usize = 8;
/// Outputs that are multiplied at once, and the bytes of their sums.
const OUTPUTS: usize = 16;
const SUMS_BYTES: usize = OUTPUTS * AT_ONCE * size_of::<f32>();
/// Columns that a warp takes at once, and warps of a block.
const COLUMNS: usize = 256;
const MOST_WARPS: usize = 4;
/// Bytes of `WarpScratch` in the kernel source: codes, scales, columns.
const WARP_SCRATCH: usize = OUTPUTS * COLUMNS + (COLUMNS / 16) * (OUTPUTS + 1 + AT_ONCE) * 2 * size_of::<f32>();
/// Blocks that a multiprocessor should have at least, so that its warps hide each other's waiting.
const BLOCKS_EACH: usize = 3;

/// Rows of X, in which these kernels are the fastest. On an H200, with Q4_K, GEMV, this and `gemm.cu` take 5,120 ×
/// 2,048 in 6.0, 6.0 and 13 µs for two rows; 8.9, 6.4 and 13 for four; 22, 7.2 and 13 for eight; for 16 this 10.7 and
/// `gemm.cu` 13, for 32 both 14.
const ROWS: RangeInclusive<usize> = 3..=16;
/// The same of quarters of pairs for each of the experts, from and below. For 128 experts, gate and up of 768 × 2,048
/// take 42, 45 and 62 µs for half a pair each; 113, 89 and 123 for two; 199, 98 and 134 for four. Between the first
/// two, GEMV and this are equal for 0.67 pairs if the times grow evenly.
const QUARTER_PAIRS: [usize; 2] = [3, 24];

pub(super) fn units() -> impl Iterator<Item = Unit> {
    let formats = Format::ALL.iter().filter(|format| !format.is_float());
    formats.flat_map(|&format| [false, true].map(|gated| Unit::new(FILE, &defines(format, gated))))
}

fn defines(format: Format, gated: bool) -> [(&'static str, &'static str); 2] {
    [("FORMAT", format.name()), ("GATED", if gated { "1" } else { "0" })]
}

/// Whether these kernels are for a product.
pub(super) fn serves(cuda: &Cuda, product: &Product) -> bool {
    let y_rows = product.y.rows();
    let enough = match product.rows {
        RowSelection::Pairs { groups, .. } => {
            let [from, below] = QUARTER_PAIRS.map(|quarters| quarters * groups.experts());
            y_rows > 1 && (from..below).contains(&y_rows.saturating_mul(4))
        }
        _ => ROWS.contains(&y_rows),
    };
    cuda.device.gpu().properties().architecture >= 80 && reads_int8(product.weight(), product.x) && enough
}

/// Launches a product.
pub(super) fn multiply(cuda: &Cuda, product: &Product) -> Result<()> {
    let (w, gated) = (product.weight(), product.up.is_some());
    // The order of sums depends on the warps, and these on the weight alone.
    let warps = w.cols.div_ceil(COLUMNS).clamp(1, MOST_WARPS);
    let slabs = slabs(cuda, product);
    let params = ProductParams::new(product, slabs as u32)?;
    let [ids, pairs, tiles, tile_count] = product.rows.args();
    let ([bias, up_bias], [y, exact, int8, bf16]) = (product.bias_args(), product.output_args());
    let (weight, up, x) = (w.arg(), product.up_arg(), product.x()?.int8(Access::Read));
    let (flag, params) = (cuda.device.flag(), Arg::params(&params));
    let args = [weight, up, x, ids, pairs, tiles, tile_count, bias, up_bias, y, exact, int8, bf16, flag, params];
    let grid = [product.output_blocks(OUTPUTS * slabs)?, product.tasks(AT_ONCE), 1];
    let kernel = Kernel { file: FILE, entry: "gemm_int8", defines: &defines(w.format, gated) };
    let shared = (warps * (WARP_SCRATCH + (1 + usize::from(gated)) * slabs * SUMS_BYTES)) as u32;
    cuda.device.launch(&Launch { shared, ..Launch::new(kernel, grid, 32 * warps as u32, &args) })
}

/// Times 16 outputs of a block: as many as there are sums for in shared memory, if that makes blocks enough to keep the
/// device busy. Of gate and up an even number, since 32 outputs are rounded together.
fn slabs(cuda: &Cuda, product: &Product) -> usize {
    let (w, y_rows) = (product.weight(), product.y.rows());
    let busy = match product.rows {
        // An even router gives pairs to so many experts.
        RowSelection::Pairs { .. } => w.experts.min(y_rows),
        _ => y_rows.div_ceil(AT_ONCE),
    };
    let wanted = BLOCKS_EACH * cuda.device.gpu().properties().multiprocessors.max(1) as usize;
    let enough = |slabs: &usize| w.rows.div_ceil(OUTPUTS * slabs).saturating_mul(busy) >= wanted;
    let (most, least) = if product.up.is_some() { (4, 2) } else { (8, 1) };
    std::iter::successors(Some(most), |slabs| (slabs / 2 >= least).then_some(slabs / 2)).find(enough).unwrap_or(least)
}

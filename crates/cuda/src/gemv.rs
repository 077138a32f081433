//! Products of weights with few rows of activations: the host side of `kernels/gemv.cu`.

use super::Cuda;
use gristmill_gpu::Unit;
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::{Product, ProductParams, RowSelection};
use gristmill_gpu::{Arg, Kernel, Launch, Vendor};
use gristmill_kernels::act::Precision;
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;

const FILE: &str = "gemv.cu";
/// Threads of a block.
const BLOCK: usize = 128;
/// And of a block of `gate_up` for one or two rows of X whose weights are so few that the device has a multiprocessor for
/// each: on an H100, Q4_K, 512 × 2,048 and two rows take 9.0 µs instead of 15.7.
const WIDE_BLOCK: usize = 512;
/// Rows of X at once of such a block.
const WIDE: [&str; 2] = ["1", "2"];
/// Weight rows of a subwarp in `matmul`, for up to four rows of int8 activations, and else: `GROUP_ROWS` in the source.
const GROUP_ROWS: [usize; 2] = [4, 2];
/// Outputs of a block in `gate_up`: those that are rounded together.
pub(super) const GATE_OUTPUTS: usize = 32;
/// Threads that a large device holds at once: 512 on each of 132 multiprocessors. They saturate its memory; further
/// threads wait until others end. On an H200, one row of X, Q4_K, four rows to a thread group: 2,048 × 4,096 takes 3.7
/// µs with 65,536 threads, and 3.9 with half of them; only reading these bytes takes 1.7.
const ENOUGH_THREADS: usize = 512 * 132;
/// Fewer neighbouring threads than this, as a power of two, would read parts of lines of 128 bytes.
const LEAST_TEAM: u32 = 3;
/// Experts that are busy at once, for the guess at how much is to be done.
const USUAL_EXPERTS: usize = 32;

/// Launches a product.
pub(super) fn multiply(cuda: &Cuda, product: &Product) -> Result<()> {
    let (w, int8) = (product.weight(), reads_int8(product.weight(), product.x.precision()));
    let (at_once, tokens) = rows_at_once(cuda, product, int8);
    // The order of a sum must not depend on the rows of X, so a thread group's size does not depend on `group_rows`.
    let threads_log2 = threads_log2(w.spans, w.rows.div_ceil(GROUP_ROWS[0]) * w.experts.min(USUAL_EXPERTS), BLOCK);
    let group_rows = GROUP_ROWS[usize::from(!int8 || at_once > 4)];
    let (entry, cut, block_outputs) = match product.up {
        None => ("matmul", threads_log2, group_rows * (BLOCK >> threads_log2)),
        Some(_) => ("gate_up", 0, GATE_OUTPUTS),
    };
    let grid = [product.output_blocks(block_outputs)?, product.tasks(at_once), 1];
    let room = grid[0].saturating_mul(grid[1]) <= cuda.device.gpu().properties().multiprocessors;
    let wide = room && product.up.is_some() && int8 && WIDE.contains(&tokens) && !cuda.deterministic();
    let block = if wide { WIDE_BLOCK } else { BLOCK };
    let params = ProductParams::new(product, cut)?;
    let (weight, x, params) = (w.arg(), x_arg(product, int8)?, Arg::params(&params));
    let [ids, pairs, tiles, tile_count] = product.rows.args();
    let [bias, up_bias] = product.bias_args();
    let [y, exact, of_int8, bf16] = product.output_args();
    let args: &[Arg] = match product.up {
        None => &[weight, x, ids, pairs, tiles, tile_count, bias, y, cuda.device.flag(), params],
        Some(up) => &[weight, up.arg(), x, pairs, tiles, tile_count, bias, up_bias, y, exact, of_int8, bf16, params],
    };
    let defines = defines(w.format, int8, tokens, wide);
    cuda.device.launch(&Launch::new(Kernel { file: FILE, entry, defines: &defines }, grid, block as u32, args))
}

/// Whether a product with this weight reads activations as int8, or exact ones.
pub(super) fn reads_int8(w: &PlaneRows, precision: Precision) -> bool {
    precision == Precision::Fast && !w.format.is_float()
}

/// The activations that a product reads.
pub(super) fn x_arg<'a>(product: &Product<'a>, int8: bool) -> Result<Arg<'a>> {
    if int8 { product.int8() } else { product.exact() }
}

/// Rows of X that kernels multiply at once: of int8 activations, and of exact ones, which are not for speed.
const AT_ONCE: [(usize, &str); 4] = [(1, "1"), (2, "2"), (4, "4"), (8, "8")];
const AT_ONCE_EXACT: [(usize, &str); 2] = [(1, "1"), (4, "4")];

fn at_once(int8: bool) -> &'static [(usize, &'static str)] {
    if int8 { &AT_ONCE } else { &AT_ONCE_EXACT }
}

/// Rows of int8 activations at once up to which sums of `gate_up` have one order: `GATE_THREADS_LOG2` in the source.
const ONE_ORDER: usize = 4;

/// The rows of X that a product multiplies at once, and the same as `TOKENS`.
fn rows_at_once(cuda: &Cuda, product: &Product, int8: bool) -> (usize, &'static str) {
    let y_rows = product.y.rows();
    let rows = match product.rows {
        RowSelection::Pairs { pairs_per_row, .. } if y_rows <= pairs_per_row => 1,
        // Twice the mean of an expert: few have more. (On an H200, gate and up for 32 tokens, 8 of 128 experts each,
        // takes 99 µs with four rows at once, 108 with two, 130 with one or eight.)
        RowSelection::Pairs { groups, .. } => (2 * y_rows).div_ceil(groups.experts()),
        _ => y_rows,
    };
    let rows = if cuda.deterministic() { rows.min(ONE_ORDER) } else { rows };
    let choices = at_once(int8);
    let enough = choices.iter().find(|(many, _)| *many >= rows);
    *enough.unwrap_or(&choices[choices.len() - 1])
}

/// The definitions of a unit.
fn defines(format: Format, int8: bool, tokens: &'static str, wide: bool) -> [(&'static str, &'static str); 4] {
    let block = if wide { "512" } else { "128" };
    [("FORMAT", format.name()), ("INT8", int8_define(int8)), ("TOKENS", tokens), ("BLOCK_THREADS", block)]
}

/// `INT8` of a unit.
pub(super) fn int8_define(int8: bool) -> &'static str {
    if int8 { "1" } else { "0" }
}

/// Formats, with exact activations and with int8 ones, which float formats do not read.
pub(super) fn inputs() -> impl Iterator<Item = (Format, bool)> {
    let inputs = Format::ALL.iter().flat_map(|&format| [(format, false), (format, true)]);
    inputs.filter(|(format, int8)| !(*int8 && format.is_float()))
}

pub(super) fn units() -> impl Iterator<Item = Unit> {
    inputs().flat_map(|(format, int8)| {
        let narrow = at_once(int8).iter().map(move |(_, tokens)| defines(format, int8, tokens, false));
        let wide = WIDE.iter().filter(move |_| int8).map(move |tokens| defines(format, int8, tokens, true));
        narrow.chain(wide).map(|defines| Unit::new(FILE, &defines))
    })
}

/// The size of a thread group, as a power of two: the fastest by a rough count of the time. It depends on the weight
/// alone, because the order of a row's sum depends on it. On an H200 the head of Qwen3-30B-A3B (Q6_K, 151,936 × 2,048)
/// takes 69 µs in thread groups of 16, 81 of 32, 78 of 8 (and two rows); its experts' down for 8 tokens (Q4_K, 2,048 ×
/// 768) 22 of 8, above 29 of 16.
pub(super) fn threads_log2(spans: usize, groups: usize, block: usize) -> u32 {
    let cost = |log2: u32| {
        // A span's time, with what each thread group does once as a quarter of one; lines that are read in two halves
        // cost.
        let turns = spans.div_ceil(1 << log2) as f64 + 0.25;
        let lines = if log2 <= LEAST_TEAM { 1.25 } else { 1.0 };
        turns * lines * ((groups << log2) as f64 / ENOUGH_THREADS as f64).max(1.0)
    };
    let most = spans.next_power_of_two().ilog2().min(block.ilog2());
    (LEAST_TEAM.min(most)..=most).min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(0)
}

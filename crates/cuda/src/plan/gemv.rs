//! Rows and threads of `gemv.cu`.

use super::card::Card;
use super::shape::Shape;
use gristmill_gpu::Unit;
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
pub(crate) const GATE_OUTPUTS: usize = 32;
/// Fewer neighbouring threads than this, as a power of two, would read parts of lines of 128 bytes.
const LEAST_TEAM: u32 = 3;
/// Experts that are busy at once, for the guess at how much is to be done.
const USUAL_EXPERTS: usize = 32;
/// Rows of X that kernels multiply at once: of int8 activations, and of exact ones, which are not for speed.
const AT_ONCE: [(usize, &str); 4] = [(1, "1"), (2, "2"), (4, "4"), (8, "8")];
const AT_ONCE_EXACT: [(usize, &str); 2] = [(1, "1"), (4, "4")];
/// Rows of int8 activations at once up to which sums of `gate_up` have one order: `GATE_THREADS_LOG2` in the source.
const ONE_ORDER: usize = 4;

/// A launch of `gemv.cu`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GemvPlan {
    pub(crate) entry: &'static str,
    /// Whether it reads int8 activations, or exact ones.
    pub(crate) int8: bool,
    /// Rows of X at once, and the same as `TOKENS`.
    pub(crate) at_once: usize,
    tokens: &'static str,
    /// Threads of a group, as a power of two, for `matmul`.
    pub(crate) cut: u32,
    /// Outputs of a block.
    pub(crate) outputs: usize,
    /// Threads of a block.
    pub(crate) block: usize,
}

impl GemvPlan {
    pub(super) fn new(card: &Card, shape: &Shape) -> Self {
        let int8 = shape.problem.reads_int8();
        let (at_once, tokens) = rows_at_once(card, shape, int8);
        // The order of a sum must not depend on the rows of X, so a thread group's size does not depend on `group_rows`.
        let groups = shape.outputs.div_ceil(GROUP_ROWS[0]) * shape.matrices.min(USUAL_EXPERTS);
        let threads_log2 = threads_log2(card, shape.spans, groups, BLOCK);
        let group_rows = GROUP_ROWS[usize::from(!int8 || at_once > 4)];
        let (entry, cut, outputs) = if shape.is_gated {
            ("gate_up", 0, GATE_OUTPUTS)
        } else {
            ("matmul", threads_log2, group_rows * (BLOCK >> threads_log2))
        };
        let blocks = shape.outputs.div_ceil(outputs).saturating_mul(shape.most_tiles(at_once));
        let may_be_wide = shape.is_gated && int8 && WIDE.contains(&tokens) && !card.is_deterministic();
        let block = if may_be_wide && blocks <= card.multiprocessors { WIDE_BLOCK } else { BLOCK };
        Self { entry, int8, at_once, tokens, cut, outputs, block }
    }

    pub(crate) fn file(&self) -> &'static str {
        FILE
    }

    /// The definitions for weights of a format.
    pub(crate) fn defines(&self, format: Format) -> [(&'static str, &'static str); 4] {
        defines(format, self.int8, self.tokens, self.block == WIDE_BLOCK)
    }
}

fn defines(format: Format, int8: bool, tokens: &'static str, is_wide: bool) -> [(&'static str, &'static str); 4] {
    let block = if is_wide { "512" } else { "128" };
    [("FORMAT", format.name()), ("INT8", int8_define(int8)), ("TOKENS", tokens), ("BLOCK_THREADS", block)]
}

/// Every unit of a plan.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    inputs().flat_map(|(format, int8)| {
        let narrow = choices(int8).iter().map(move |(_, tokens)| defines(format, int8, tokens, false));
        let wide = WIDE.iter().filter(move |_| int8).map(move |tokens| defines(format, int8, tokens, true));
        narrow.chain(wide).map(|defines| Unit::new(FILE, &defines))
    })
}

/// Formats, with exact activations and with int8 ones, which float formats do not read.
pub(crate) fn inputs() -> impl Iterator<Item = (Format, bool)> {
    let inputs = Format::ALL.iter().flat_map(|&format| [(format, false), (format, true)]);
    inputs.filter(|(format, int8)| !(*int8 && format.is_float()))
}

/// `INT8` of a unit.
pub(crate) fn int8_define(int8: bool) -> &'static str {
    if int8 { "1" } else { "0" }
}

fn choices(int8: bool) -> &'static [(usize, &'static str)] {
    if int8 { &AT_ONCE } else { &AT_ONCE_EXACT }
}

/// The rows of X that a product multiplies at once, and the same as `TOKENS`.
fn rows_at_once(card: &Card, shape: &Shape, int8: bool) -> (usize, &'static str) {
    let rows = match shape.problem.experts {
        Some(_) if shape.problem.rows <= shape.pairs_per_row => 1,
        // Twice the mean of an expert: few have more. (On an H200, gate and up for 32 tokens, 8 of 128 experts each,
        // takes 99 µs with four rows at once, 108 with two, 130 with one or eight.)
        Some(experts) => (2 * shape.problem.rows).div_ceil(experts),
        None => shape.problem.rows,
    };
    let rows = if card.is_deterministic() { rows.min(ONE_ORDER) } else { rows };
    let choices = choices(int8);
    let enough = choices.iter().find(|(many, _)| *many >= rows);
    *enough.unwrap_or(&choices[choices.len() - 1])
}

/// The size of a thread group, as a power of two: the fastest by a rough count of the time. It depends on the weight
/// alone, because the order of a row's sum depends on it. On an H200 the head of Qwen3-30B-A3B (Q6_K, 151,936 × 2,048)
/// takes 69 µs in thread groups of 16, 81 of 32, 78 of 8 (and two rows); its experts' down for 8 tokens (Q4_K, 2,048 ×
/// 768) 22 of 8, above 29 of 16.
pub(crate) fn threads_log2(card: &Card, spans: usize, groups: usize, block: usize) -> u32 {
    let enough = card.thresholds().gemv_threads as f64;
    let cost = |log2: u32| {
        // A span's time, with what each thread group does once as a quarter of one; lines that are read in two halves
        // cost.
        let turns = spans.div_ceil(1 << log2) as f64 + 0.25;
        let lines = if log2 <= LEAST_TEAM { 1.25 } else { 1.0 };
        turns * lines * ((groups << log2) as f64 / enough).max(1.0)
    };
    let most = spans.next_power_of_two().ilog2().min(block.ilog2());
    (LEAST_TEAM.min(most)..=most).min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(0)
}

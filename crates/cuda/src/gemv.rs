//! Products of weights with few rows of activations: the host side of `kernels/gemv.cu`.

use super::Cuda;
use super::units::Unit;
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::{Bias, Gated, ProductParams, RowSelection, bias_arg, lists, word};
use gristmill_gpu::storage::GpuAct;
use gristmill_gpu::{Access, Arg, Kernel, Launch};
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::Activation;
use gristmill_kernels::tensor::{Buffer, ViewMut};

/// Threads of a block.
const BLOCK: usize = 128;
/// Weight rows that a team multiplies at once in `matmul`, of up to four rows of int8 activations, and else: `GROUP_ROWS` in
/// the text.
const TEAM_ROWS: [usize; 2] = [4, 2];
/// Outputs of a block in `gate_up`: what is rounded together.
const GATE_OUTPUTS: usize = 32;
/// Threads that a large device holds at once: 512 on each of 132 multiprocessors. They keep its memory busy; more wait for
/// the first to end. On an H200, one row of X, Q4_K, four rows to a team: 2,048 × 4,096 takes 3.7 µs with 65,536 threads,
/// 3.9 with half as many; reading as many bytes alone 1.7.
const ENOUGH_THREADS: usize = 512 * 132;
/// Fewer neighbouring threads than this, as a power of two, would read parts of lines of 128 bytes.
const LEAST_TEAM: u32 = 3;
/// Experts that are busy at once, for the guess at how much is to be done.
const USUAL_EXPERTS: usize = 32;

/// X · Wᵀ + bias, with an epilogue in Y.
pub(crate) fn matmul(
    cuda: &Cuda,
    op: &'static str,
    w: &PlaneRows,
    x: &Act,
    which: RowSelection,
    bias: Option<Bias>,
    epilogue: ProductEpilogue,
    y: &ViewMut<f32>,
) -> Result<()> {
    let Some(call) = Call::new(w, x, which, y.rows()) else { return Ok(()) };
    let team_rows = TEAM_ROWS[usize::from(!call.int8 || call.at_once > 4)];
    // Not of `team_rows`: the order of a sum must not depend on the rows of X.
    let team_log2 = team_log2(w.spans, w.rows.div_ceil(TEAM_ROWS[0]) * w.experts.min(USUAL_EXPERTS), BLOCK);
    let blocks = w.rows.div_ceil(team_rows).div_ceil(BLOCK >> team_log2);
    let params = ProductParams::new(op, w, x, which, bias, team_log2, epilogue, y.layout().stride(), y.rows())?;
    let [pairs, tiles, tile_count] = lists(which);
    let (bias, ids) = (bias_arg(bias), if let RowSelection::Ids(ids) = &which { Arg::read(ids) } else { Arg::Null });
    let (x, y, params) = (call.x(x)?, epilogue.output(y), Arg::params(&params));
    call.launch(
        cuda,
        op,
        "matmul",
        blocks,
        &[w.arg(), x, ids, pairs, tiles, tile_count, bias, y, cuda.device.flag(), params],
    )
}

/// Blocks along x of the kernels that make gate and up.
pub(crate) fn gate_blocks(outputs: usize) -> usize {
    outputs.div_ceil(GATE_OUTPUTS)
}

/// activation(gate · x + bias, up · x + bias), for two weights of one shape and format, of so many rows.
pub(crate) fn gate_up(
    cuda: &Cuda,
    op: &'static str,
    [gate, up]: [&PlaneRows; 2],
    x: &Act,
    which: RowSelection,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    rows: usize,
    to: Gated,
) -> Result<()> {
    let Some(call) = Call::new(gate, x, which, rows) else { return Ok(()) };
    let [gate_bias, up_bias] = Bias::both(bias, gate.rows);
    let stride = to.h.map_or(0, |h| h.layout().stride());
    let params = ProductParams::new(op, gate, x, which, gate_bias, 0, ProductEpilogue::Gate(activation), stride, rows)?;
    let [pairs, tiles, tile_count] = lists(which);
    let (gate_bias, up_bias) = (bias_arg(gate_bias), bias_arg(up_bias));
    let ([h, exact, int8, bf16], params) = (to.args(), Arg::params(&params));
    let lists = [pairs, tiles, tile_count, gate_bias, up_bias];
    let [pairs, tiles, tile_count, gate_bias, up_bias] = lists;
    let args =
        [gate.arg(), up.arg(), call.x(x)?, pairs, tiles, tile_count, gate_bias, up_bias, h, exact, int8, bf16, params];
    call.launch(cuda, op, "gate_up", gate_blocks(gate.rows), &args)
}

/// What is common to the products of some rows of X with a weight.
struct Call {
    format: Format,
    int8: bool,
    /// Rows of X at a time, and as the text knows it.
    at_once: usize,
    tokens: &'static str,
    /// Blocks along y.
    tasks: u32,
}

impl Call {
    /// `None` if there is nothing to do.
    fn new(w: &PlaneRows, x: &Act, which: RowSelection, y_rows: usize) -> Option<Self> {
        let int8 = reads_int8(w, x);
        let rows = match which {
            RowSelection::Pairs { pairs_per_row, .. } if y_rows <= pairs_per_row => 1,
            // Of each expert twice the mean: few have more. (On an H200, gate and up for 32 tokens, 8 of 128 experts each,
            // takes 99 µs with four rows at once, 108 with two, 130 with one or eight.)
            RowSelection::Pairs { groups, .. } => (2 * y_rows).div_ceil(groups.experts()),
            _ => y_rows,
        };
        let (at_once, tokens) = rows_at_once(rows, int8);
        let tasks = which.tasks(w.experts, y_rows, at_once);
        (y_rows > 0).then_some(Self { format: w.format, int8, at_once, tokens, tasks })
    }

    fn x<'x>(&self, x: &'x Act) -> Result<Arg<'x>> {
        x_arg(x, self.int8)
    }

    fn launch(&self, cuda: &Cuda, op: &'static str, entry: &'static str, blocks: usize, args: &[Arg]) -> Result<()> {
        let defines = defines(self.format, self.int8, self.tokens);
        let kernel = Kernel { file: "gemv.cu", entry, defines: &defines };
        let grid = [word(op, "blocks of outputs", blocks)?, self.tasks, 1];
        cuda.device.launch(&Launch { kernel, grid, block: BLOCK as u32, shared: 0, overlap: true, args })
    }
}

/// Whether a product with this weight reads activations as int8, or exact ones.
pub(super) fn reads_int8(w: &PlaneRows, x: &Act) -> bool {
    x.precision() == Precision::Fast && !w.format.is_float()
}

/// The activations that a product reads.
pub(super) fn x_arg(x: &Act, int8: bool) -> Result<Arg<'_>> {
    let x: &GpuAct = x.storage("matmul")?;
    Ok(if int8 { x.int8(Access::Read) } else { x.exact(Access::Read) })
}

/// Rows of X that kernels multiply at once: of int8 activations, and of exact ones, which are not for speed.
const AT_ONCE: [(usize, &str); 4] = [(1, "1"), (2, "2"), (4, "4"), (8, "8")];
const AT_ONCE_EXACT: [(usize, &str); 2] = [(1, "1"), (4, "4")];

fn at_once(int8: bool) -> &'static [(usize, &'static str)] {
    if int8 { &AT_ONCE } else { &AT_ONCE_EXACT }
}

/// As many rows of X at once as there are, or the most.
fn rows_at_once(rows: usize, int8: bool) -> (usize, &'static str) {
    let choices = at_once(int8);
    let enough = choices.iter().find(|(many, _)| *many >= rows);
    *enough.unwrap_or(&choices[choices.len() - 1])
}

/// The macros of one compilation.
fn defines(format: Format, int8: bool, tokens: &'static str) -> [(&'static str, &'static str); 3] {
    [("FORMAT", format.name()), ("INT8", int8_text(int8)), ("TOKENS", tokens)]
}

/// Whether activations are int8, as units know it.
pub(super) fn int8_text(int8: bool) -> &'static str {
    if int8 { "1" } else { "0" }
}

/// Every compilation of `gemv.cu`.
pub(super) fn units() -> Vec<Unit> {
    let kinds = Format::ALL.iter().flat_map(|&format| [(format, false), (format, true)]);
    // Float formats do not read int8 activations.
    let kinds = kinds.filter(|(format, int8)| !(*int8 && format.is_float()));
    let units = kinds.flat_map(|(format, int8)| {
        at_once(int8).iter().map(move |(_, tokens)| Unit {
            file: "gemv.cu",
            defines: defines(format, int8, tokens).map(|(name, value)| (name, value.to_owned())).to_vec(),
        })
    });
    units.collect()
}

/// The size of a team, as a power of two: the fastest by a rough count of the time. It depends on the weight alone, because
/// the order of a row's sum depends on it. On an H200 the head of Qwen3-30B-A3B (Q6_K, 151,936 × 2,048) takes 69 µs in
/// teams of 16, 81 of 32, 78 of 8 (and two rows); its experts' down for 8 tokens (Q4_K, 2,048 × 768) 22 of 8, above 29 of 16.
pub(super) fn team_log2(spans: usize, teams: usize, block: usize) -> u32 {
    let cost = |log2: u32| {
        // A span's time, with what each team does once as a quarter of one; lines that are read in two halves cost.
        let turns = spans.div_ceil(1 << log2) as f64 + 0.25;
        let lines = if log2 <= LEAST_TEAM { 1.25 } else { 1.0 };
        turns * lines * ((teams << log2) as f64 / ENOUGH_THREADS as f64).max(1.0)
    };
    let most = spans.next_power_of_two().ilog2().min(block.ilog2());
    (LEAST_TEAM.min(most)..=most).min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(0)
}

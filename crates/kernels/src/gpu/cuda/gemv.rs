//! Products of weights with few rows of activations: the host side of `kernels/gemv.cu`.

use super::product::{Bias, Which, bias_arg, lists, word};
use super::texts::Text;
use crate::act::{Act, Precision};
use crate::error::Result;
use crate::format::Format;
use crate::gpu::activation::ActivationParams;
use crate::gpu::layout::Rows;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
use crate::group::max_tiles;
use crate::ops::Activation;
use crate::tensor::{Buffer, ViewMut};

/// Threads of a block.
const BLOCK: usize = 128;
/// Weight rows that a team multiplies at once in `matmul`; in `gate_up` it takes one of each weight.
const TEAM_ROWS: usize = 2;
/// Threads that a large device holds at once: 3 blocks on each of 132 multiprocessors. They keep its memory busy; more
/// wait for the first to end. Measured on an H200 with Q4_K, before loads went on while others are used: 5,120 × 2,048
/// takes 4.3 µs with 40,960 threads and 6.4 with twice as many.
const ENOUGH_THREADS: usize = 3 * BLOCK * 132;
/// Fewer neighbouring threads than this would read parts of lines of 128 bytes.
const LEAST_TEAM: u32 = 3;
/// Experts of a token that take part in the guess at how much is to be done.
const USUAL_EXPERTS: usize = 8;
/// The most blocks along the grid's y.
const GRID_Y: usize = 65_535;

/// Twin of `GemvParams` in the kernel's text.
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
struct GemvParams {
    row_bytes: u64,
    matrix_bytes: u64,
    y_stride: u64,
    ids_stride: u64,
    bias_stride: u64,
    outputs: u32,
    blocks: u32,
    x_rows: u32,
    y_rows: u32,
    team_log2: u32,
    share: u32,
    finish: u32,
    activation: ActivationParams,
}

/// What becomes of a product, as the kernel counts it.
const STORE: u32 = 0;
const GATE: u32 = 1;

/// Y = X · Wᵀ + bias; or, for a Y that holds gates, activation(Y, X · Wᵀ + bias).
pub(crate) fn matmul(
    device: &Device,
    op: &'static str,
    w: &Rows,
    x: &Act,
    which: Which,
    bias: Option<Bias>,
    gated: Option<Activation>,
    y: &ViewMut<f32>,
) -> Result<()> {
    let call = Call::new(op, w, w.rows.div_ceil(TEAM_ROWS), x, which, y.rows())?;
    let Some(call) = call else { return Ok(()) };
    let mut params = call.params(op, w, x, which, bias, y)?;
    if let Some(activation) = gated {
        (params.finish, params.activation) = (GATE, activation.into());
    }
    let [pairs, tiles, tile_count] = lists(which);
    let (bias, ids) = (bias_arg(bias), if let Which::Ids(ids) = &which { Arg::read(ids) } else { Arg::Null });
    let y = if gated.is_some() { Arg::change(y) } else { Arg::write(y) };
    let args = [w.arg(), call.x, ids, pairs, tiles, tile_count, bias, y, device.flag(), Arg::params(&params)];
    call.launch(device, "matmul", &args)
}

/// H = activation(gate · x + bias, up · x + bias), for two weights of one shape and format.
pub(crate) fn gate_up(
    device: &Device,
    op: &'static str,
    [gate, up]: [&Rows; 2],
    x: &Act,
    which: Which,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: &ViewMut<f32>,
) -> Result<()> {
    let call = Call::new(op, gate, gate.rows, x, which, h.rows())?;
    let Some(call) = call else { return Ok(()) };
    let [gate_bias, up_bias] =
        bias.map_or([None; 2], |both| both.map(|values| Some(Bias { values, first: 0, matrix: gate.rows })));
    let params = GemvParams { activation: activation.into(), ..call.params(op, gate, x, which, gate_bias, h)? };
    let [pairs, tiles, tile_count] = lists(which);
    let (gate_bias, up_bias) = (bias_arg(gate_bias), bias_arg(up_bias));
    let params = Arg::params(&params);
    let args = [gate.arg(), up.arg(), call.x, pairs, tiles, tile_count, gate_bias, up_bias, Arg::write(h), params];
    call.launch(device, "gate_up", &args)
}

/// How a product is cut, and its compiled form.
struct Call<'a> {
    format: Format,
    x: Arg<'a>,
    int8: bool,
    /// Rows of X at a time.
    tokens: &'static str,
    team_log2: u32,
    grid: [u32; 3],
}

impl<'a> Call<'a> {
    /// For so many teams. `None` if there is nothing to do.
    fn new(op: &'static str, w: &Rows, teams: usize, x: &'a Act, which: Which, y_rows: usize) -> Result<Option<Self>> {
        if y_rows == 0 {
            return Ok(None);
        }
        let int8 = x.precision == Precision::Fast && !w.format.is_float();
        let x = if int8 { Arg::buffer(&x.int8, Access::Read) } else { Arg::buffer(&x.exact, Access::Read) };
        let rows = match which {
            Which::Pairs { share, .. } if y_rows <= share => 1,
            // Of each expert, if the router is even.
            Which::Pairs { groups, .. } => y_rows.div_ceil(groups.counts.len()),
            _ => y_rows,
        };
        let (at_once, tokens) = rows_at_once(rows, int8);
        let tasks = match which {
            // One more is for pairs without an expert.
            Which::Pairs { groups, .. } => max_tiles(w.experts, y_rows, groups.tile_rows).min(GRID_Y - 1) + 1,
            _ => y_rows.div_ceil(at_once).min(GRID_Y),
        };
        let team_log2 = team_log2(w.spans, teams * w.experts.min(USUAL_EXPERTS));
        let grid = [word(op, "blocks of outputs", teams.div_ceil(BLOCK >> team_log2))?, tasks as u32, 1];
        Ok(Some(Self { format: w.format, x, int8, tokens, team_log2, grid }))
    }

    fn params(
        &self,
        op: &'static str,
        w: &Rows,
        x: &Act,
        which: Which,
        bias: Option<Bias>,
        y: &ViewMut<f32>,
    ) -> Result<GemvParams> {
        let (ids_stride, share) = match which {
            Which::All => (0, 1),
            Which::Ids(ids) => (ids.shape().stride(), 1),
            Which::Pairs { share, .. } => (0, share),
        };
        Ok(GemvParams {
            row_bytes: w.row_bytes as u64,
            matrix_bytes: w.matrix_bytes() as u64,
            y_stride: y.shape().stride() as u64,
            ids_stride: ids_stride as u64,
            bias_stride: bias.map_or(0, |bias| bias.matrix) as u64,
            outputs: word(op, "outputs", w.rows)?,
            blocks: word(op, "blocks in a row", w.blocks())?,
            x_rows: word(op, "rows of X", x.rows)?,
            y_rows: word(op, "rows of Y", y.rows())?,
            team_log2: self.team_log2,
            share: word(op, "pairs of a row", share)?,
            finish: STORE,
            activation: Activation::SwiGlu.into(),
        })
    }

    fn launch(&self, device: &Device, entry: &'static str, args: &[Arg]) -> Result<()> {
        let defines = defines(self.format, self.int8, self.tokens);
        let kernel = Kernel { file: "gemv.cu", entry, defines: &defines };
        device.launch(&Launch { kernel, grid: self.grid, block: BLOCK as u32, shared: 0, overlap: true, args })
    }
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
    [("FORMAT", format.name()), ("INT8", if int8 { "1" } else { "0" }), ("TOKENS", tokens)]
}

/// Every compilation of `gemv.cu`.
pub(super) fn texts() -> Vec<Text> {
    let kinds = Format::ALL.iter().flat_map(|&format| [(format, false), (format, true)]);
    // Float formats do not read int8 activations.
    let kinds = kinds.filter(|(format, int8)| !(*int8 && format.is_float()));
    let texts = kinds.flat_map(|(format, int8)| {
        at_once(int8).iter().map(move |(_, tokens)| Text {
            file: "gemv.cu",
            defines: defines(format, int8, tokens).map(|(name, value)| (name, value.to_owned())).to_vec(),
        })
    });
    texts.collect()
}

/// The size of a team, as a power of two: the fastest by a rough count of the time. It depends on the weight alone, because
/// the order of a row's sum depends on it.
fn team_log2(spans: usize, teams: usize) -> u32 {
    // Spans one after another, with one more for what each team does once, by how often the device is full.
    let cost = |log2: u32| (spans.div_ceil(1 << log2) + 1) * (teams << log2).div_ceil(ENOUGH_THREADS);
    let most = spans.next_power_of_two().ilog2().min(BLOCK.ilog2());
    (LEAST_TEAM.min(most)..=most).min_by_key(|&log2| cost(log2)).unwrap_or(0)
}

//! Products of weights with few rows of activations: the host side of `kernels/gemv.metal`.

use super::matmul::part_args;
use crate::act::Act;
use crate::error::Result;
use crate::format::Format;
use crate::gpu::finish::Finish;
use crate::gpu::layout::Rows;
use crate::gpu::product::{Bias, ProductParams, Which, bias_arg, lists, word};
use crate::gpu::{Access, Arg, Device, Kernel, Launch, Text};
use crate::ops::Activation;
use crate::tensor::{Buffer, ViewMut};

pub(super) const FILE: &str = "gemv.metal";
/// Threads of a block.
pub(super) const BLOCK: usize = 64;
/// Weight rows that a team multiplies at once in `matmul`, and outputs in `gate_up`: `TEAM_ROWS` and `GATE_ROWS` in the text.
const TEAM_ROWS: usize = 4;
pub(super) const GATE_ROWS: usize = 2;
/// Lanes of a team, as powers of two: fewer would read parts of a line of memory.
const TEAMS: std::ops::RangeInclusive<u32> = 2..=5;
/// Rows of X that the kernels multiply at once if there are several.
const SEVERAL: usize = 4;

/// Lanes for rows of so many spans, as a power of two: as many as leave the fewest without work in the last turn.
pub(super) fn team_log2(spans: usize) -> u32 {
    let turns = |log2: &u32| spans.next_multiple_of(1 << log2);
    TEAMS.rev().min_by_key(turns).unwrap_or(*TEAMS.end())
}

/// Every compilation of the text.
pub(super) fn texts() -> impl Iterator<Item = Text> {
    Format::ALL.iter().map(|format| Text { file: FILE, defines: vec![("FORMAT", format.name().to_owned())] })
}

/// X · Wᵀ + bias, which finishes in Y, for weights that one launch takes (`runs` in [`super::matmul`]).
pub(super) fn matmul(
    device: &Device,
    op: &'static str,
    run: &[Rows],
    x: &Act,
    which: Which,
    bias: Option<Bias>,
    finish: Finish,
    y: &ViewMut<f32>,
) -> Result<()> {
    let call = Call::new(&run[0], which, y.rows());
    let params = call.params(op, &run[0], x, which, bias, finish, y)?.joined(op, run)?;
    let [pairs, tiles, tile_count] = lists(which);
    let ids = if let Which::Ids(ids) = &which { Arg::read(ids) } else { Arg::Null };
    let (x, bias, y) = (Arg::buffer(&x.exact, Access::Read), bias_arg(bias), finish.output(y));
    let [weight, second, third] = part_args(run);
    let (flag, params) = (device.flag(), Arg::params(&params));
    let args = [weight, second, third, x, ids, pairs, tiles, tile_count, bias, y, flag, params];
    call.launch(device, op, run, ["matmul", "matmul_several"], TEAM_ROWS, &args)
}

/// activation(gate · x + bias, up · x + bias), for two weights of one shape and format.
pub(super) fn gate_up(
    device: &Device,
    op: &'static str,
    [gate, up]: [&Rows; 2],
    x: &Act,
    which: Which,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: &ViewMut<f32>,
) -> Result<()> {
    let call = Call::new(gate, which, h.rows());
    let [gate_bias, up_bias] = Bias::both(bias, gate.rows);
    let params = call.params(op, gate, x, which, gate_bias, Finish::Gate(activation), h)?;
    let [pairs, tiles, tile_count] = lists(which);
    let (x, h) = (Arg::buffer(&x.exact, Access::Read), Arg::write(h));
    let (gate_bias, up_bias, params) = (bias_arg(gate_bias), bias_arg(up_bias), Arg::params(&params));
    let args = [gate.arg(), up.arg(), x, pairs, tiles, tile_count, gate_bias, up_bias, h, params];
    call.launch(device, op, std::slice::from_ref(gate), ["gate_up", "gate_up_several"], GATE_ROWS, &args)
}

/// What is common to the products of some rows of X with a weight.
struct Call {
    team_log2: u32,
    several: bool,
    /// Blocks along y.
    tasks: u32,
}

impl Call {
    fn new(w: &Rows, which: Which, y_rows: usize) -> Self {
        let several = match which {
            // Twice the mean of an expert: few have more.
            Which::Pairs { groups, share } => y_rows > share && 2 * y_rows > groups.counts.len(),
            _ => y_rows > 1,
        };
        let tasks = which.tasks(w.experts, y_rows, if several { SEVERAL } else { 1 });
        Self { team_log2: team_log2(w.spans), several, tasks }
    }

    fn params(
        &self,
        op: &'static str,
        w: &Rows,
        x: &Act,
        which: Which,
        bias: Option<Bias>,
        finish: Finish,
        y: &ViewMut<f32>,
    ) -> Result<ProductParams> {
        ProductParams::new(op, w, x, which, bias, self.team_log2, finish, y.shape().stride(), y.rows())
    }

    /// `entries`: for a row of X at a time, and for several. `team_rows`: outputs of a team.
    fn launch(
        &self,
        device: &Device,
        op: &'static str,
        run: &[Rows],
        entries: [&'static str; 2],
        team_rows: usize,
        args: &[Arg],
    ) -> Result<()> {
        let defines = [("FORMAT", run[0].format.name())];
        let outputs: usize = run.iter().map(|part| part.rows).sum();
        let blocks = outputs.div_ceil(team_rows).div_ceil(BLOCK >> self.team_log2);
        device.launch(&Launch {
            kernel: Kernel { file: FILE, entry: entries[usize::from(self.several)], defines: &defines },
            grid: [word(op, "blocks of outputs", blocks)?, self.tasks, 1],
            block: BLOCK as u32,
            shared: 0,
            overlap: true,
            args,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_leave_few_lanes_idle() {
        for (spans, lanes) in [(1, 4), (4, 4), (8, 8), (12, 4), (16, 16), (24, 8), (64, 32), (90, 4), (33, 4)] {
            assert_eq!(1 << team_log2(spans), lanes, "{spans} spans");
        }
    }
}

//! The experts of few tokens in two launches: the host side of `kernels/experts.cu`; and those of many, one operation after
//! the other.

use super::family::Family;
use super::gemv::{gate_blocks, int8_text, reads_int8, x_arg};
use super::moe;
use super::product::{Bias, Gated, bias_arg, word};
use super::texts::Text;
use crate::act::Act;
use crate::error::Result;
use crate::format::Format;
use crate::gpu::finish::{Finish, FinishParams};
use crate::gpu::layout::{Rows, pair, parts};
use crate::gpu::small::elementwise;
use crate::gpu::small::route::{self, RouteParams};
use crate::gpu::twin::twin;
use crate::gpu::{Arg, Device, Kernel, Launch};
use crate::ops::{Experts, ExpertsRoom, Routing};
use crate::tensor::{Buffer, View, ViewMut};

const OP: &str = "experts";
const FILE: &str = "experts.cu";
/// Tokens that are few. An expert of several tokens is read for each, from the cache: of 128 experts and 8 of them for each
/// token, four tokens have 29 different ones in 32.
const FEW: usize = 4;
/// Experts that a lane may hold; with more there would be no registers for weights.
const PER_LANE: [&str; 2] = ["4", "8"];
/// Threads of a block for gate and up.
const BLOCK: u32 = 256;
/// As in the text: rows of `down` of a block, and its warps at most.
const DOWN_ROWS: usize = 8;
const DOWN_WARPS: usize = 8;

twin! {
    #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(super) struct ExpertsParams in "experts.cu" {
        route: RouteParams,
        row_bytes: u64,
        matrix_bytes: u64,
        bias_stride: u64,
        y_stride: u64,
        outputs: u32,
        blocks: u32,
        cols: u32,
        finish: FinishParams,
    }
}

/// What may be compiled.
pub(super) fn texts() -> impl Iterator<Item = Text> {
    let kinds = Format::ALL.iter().flat_map(|&format| [(format, false), (format, true)]);
    let kinds = kinds.filter(|(format, int8)| !(*int8 && format.is_float()));
    kinds.flat_map(|(format, int8)| {
        PER_LANE.map(|per_lane| {
            let defines = defines(format, int8, per_lane);
            Text { file: FILE, defines: defines.map(|(name, value)| (name, value.to_owned())).to_vec() }
        })
    })
}

fn defines(format: Format, int8: bool, per_lane: &'static str) -> [(&'static str, &'static str); 3] {
    [("FORMAT", format.name()), ("INT8", int8_text(int8)), ("EXPERTS_PER_LANE", per_lane)]
}

/// [`crate::ops::Backend::experts`], checked.
pub(super) fn experts(
    device: &Device,
    experts: &Experts,
    x: &Act,
    logits: View<f32>,
    routing: &Routing,
    room: ExpertsRoom,
    finish: Finish,
    y: ViewMut<f32>,
) -> Result<()> {
    let few = Few::new(experts, x, &logits, routing, &room)?;
    match few {
        Some(few) if device.may(Family::Gemv) => few.launch(device, experts, x, logits, room, finish, y),
        _ => many(device, experts, x, logits, routing, room, finish, y),
    }
}

fn many(
    device: &Device,
    experts: &Experts,
    x: &Act,
    logits: View<f32>,
    routing: &Routing,
    room: ExpertsRoom,
    finish: Finish,
    y: ViewMut<f32>,
) -> Result<()> {
    let ExpertsRoom { mut ids, mut weights, groups, h, act, mut out } = room;
    groups.tile_rows = moe::tile_rows(device, logits.cols(), ids.rows() * ids.cols());
    route::route_and_group(device, logits, routing, None, ids.reborrow(), weights.reborrow(), groups)?;
    let (k, activation) = (routing.top_k, experts.activation);
    moe::moe_gate_up(device, experts.gate_up, x, groups, k, experts.gate_up_bias, activation, h, Some(act))?;
    moe::moe_matmul(device, experts.down, act, groups, k, experts.down_bias, out.reborrow())?;
    elementwise::moe_combine(device, out.as_view(), weights.as_view(), finish, y)
}

/// Few tokens, for which the two kernels are.
struct Few<'a> {
    route: RouteParams,
    per_lane: &'static str,
    gate_up: [&'a Rows; 2],
    down: &'a Rows,
}

impl<'a> Few<'a> {
    fn new(
        experts: &Experts<'a>,
        x: &Act,
        logits: &View<f32>,
        routing: &Routing,
        room: &ExpertsRoom,
    ) -> Result<Option<Self>> {
        let route = RouteParams::new(logits, routing, false, &room.ids, &room.weights)?;
        let per_lane = route::plain(&route).filter(|per_lane| PER_LANE.contains(per_lane));
        let (gate_up, down) = (pair(OP, experts.gate_up)?, parts(OP, experts.down)?);
        let one_format = gate_up[0].format == gate_up[1].format;
        Ok(match (per_lane, down) {
            (Some(per_lane), [down]) if one_format && (1..=FEW).contains(&x.rows) => {
                Some(Self { route, per_lane, gate_up, down })
            }
            _ => None,
        })
    }

    fn launch(
        &self,
        device: &Device,
        experts: &Experts,
        x: &Act,
        logits: View<f32>,
        room: ExpertsRoom,
        finish: Finish,
        y: ViewMut<f32>,
    ) -> Result<()> {
        let ExpertsRoom { ids, weights, act, .. } = room;
        let (tokens, k) = (x.rows, weights.cols());
        let ([gate, up], down) = (self.gate_up, self.down);
        (act.rows, act.cols) = (tokens * k, gate.rows);
        let act = &*act;

        let params = self.params(gate, Finish::Gate(experts.activation), 0)?;
        let biases = experts.gate_up_bias.map(|both| both.map(|values| of_bias(values, gate)));
        let [gate_bias, up_bias] = biases.map_or([Arg::Null; 2], |both| both.map(|bias| bias_arg(Some(bias))));
        let to = Gated { h: None, act: Some(act) };
        let [_, exact, of_int8, bf16] = to.args();
        let int8 = reads_int8(gate, x);
        let (input, scores) = (x_arg(x, int8), Arg::read(&logits));
        let (ids, weights, params) = (Arg::write(&ids), Arg::write(&weights), Arg::params(&params));
        device.launch(&Launch {
            kernel: Kernel {
                file: FILE,
                entry: "experts_gate_up",
                defines: &defines(gate.format, int8, self.per_lane),
            },
            grid: [word(OP, "blocks of outputs", gate_blocks(gate.rows))?, (tokens * k) as u32, 1],
            block: BLOCK,
            shared: 0,
            overlap: true,
            args: &[
                gate.arg(),
                up.arg(),
                input,
                scores,
                gate_bias,
                up_bias,
                ids,
                weights,
                exact,
                of_int8,
                bf16,
                params,
            ],
        })?;

        let params = self.params(down, finish, y.shape().stride())?;
        let bias = bias_arg(experts.down_bias.map(|values| of_bias(values, down)));
        let int8 = reads_int8(down, act);
        let (input, y, params) = (x_arg(act, int8), finish.output(&y), Arg::params(&params));
        device.launch(&Launch {
            kernel: Kernel { file: FILE, entry: "experts_down", defines: &defines(down.format, int8, self.per_lane) },
            grid: [word(OP, "blocks of outputs", down.rows.div_ceil(DOWN_ROWS))?, tokens as u32, 1],
            block: 32 * k.min(DOWN_WARPS) as u32,
            shared: 0,
            overlap: true,
            args: &[down.arg(), input, scores, bias, y, params],
        })
    }

    fn params(&self, w: &Rows, finish: Finish, y_stride: usize) -> Result<ExpertsParams> {
        Ok(ExpertsParams {
            route: self.route,
            row_bytes: w.row_bytes as u64,
            matrix_bytes: w.matrix_bytes() as u64,
            bias_stride: w.rows as u64,
            y_stride: y_stride as u64,
            outputs: word(OP, "outputs", w.rows)?,
            blocks: word(OP, "blocks in a row", w.blocks())?,
            cols: word(OP, "columns", w.cols)?,
            finish: finish.into(),
        })
    }
}

fn of_bias<'a>(values: &'a Buffer<f32>, w: &Rows) -> Bias<'a> {
    Bias { values, first: 0, matrix: w.rows }
}

//! The experts of few tokens in two launches: the host side of `kernels/experts.cu`.

use super::family::Family;
use super::gemv::{gate_blocks, int8_text, reads_int8, x_arg};
use super::units::Unit;
use gristmill_gpu::common::route::{self, RouteParams};
use gristmill_gpu::epilogue::{EpilogueParams, ProductEpilogue};
use gristmill_gpu::layout::{PlaneRows, pair, parts};
use gristmill_gpu::product::{Bias, bias_arg, word};
use gristmill_gpu::shared_struct;
use gristmill_gpu::storage::GpuAct;
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;

use super::Cuda;
use gristmill_gpu::{Arg, Kernel, Launch};
use gristmill_kernels::ops::{Experts, Fused, Operation};
use gristmill_kernels::tensor::Buffer;

const OP: &str = Experts::NAME;
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

shared_struct! {
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
        epilogue: EpilogueParams,
    }
}

/// What may be compiled.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    let kinds = Format::ALL.iter().flat_map(|&format| [(format, false), (format, true)]);
    let kinds = kinds.filter(|(format, int8)| !(*int8 && format.is_float()));
    kinds.flat_map(|(format, int8)| {
        PER_LANE.map(|per_lane| {
            let defines = defines(format, int8, per_lane);
            Unit { file: FILE, defines: defines.map(|(name, value)| (name, value.to_owned())).to_vec() }
        })
    })
}

fn defines(format: Format, int8: bool, per_lane: &'static str) -> [(&'static str, &'static str); 3] {
    [("FORMAT", format.name()), ("INT8", int8_text(int8)), ("EXPERTS_PER_LANE", per_lane)]
}

/// [`Experts`] in two launches, for few tokens.
pub(super) fn experts(cuda: &Cuda, call: &mut Experts) -> Result<Fused> {
    let few = Few::new(call)?.filter(|_| cuda.may(Family::Gemv));
    few.map_or(Ok(Fused::No), |few| few.launch(cuda, call).map(|()| Fused::Yes))
}

/// What the two kernels for few tokens need.
struct Few<'a> {
    route: RouteParams,
    per_lane: &'static str,
    gate_up: [&'a PlaneRows; 2],
    down: &'a PlaneRows,
}

impl<'a> Few<'a> {
    fn new(call: &Experts<'a>) -> Result<Option<Self>> {
        let Experts { route: routed, weights, x, .. } = call;
        let route = RouteParams::new(routed)?;
        let per_lane = route::plain(&route).filter(|per_lane| PER_LANE.contains(per_lane));
        let (gate_up, down) = (pair(OP, weights.gate_up)?, parts(OP, weights.down)?);
        let one_format = gate_up[0].format == gate_up[1].format;
        Ok(match (per_lane, down) {
            (Some(per_lane), [down]) if one_format && (1..=FEW).contains(&x.rows()) => {
                Some(Self { route, per_lane, gate_up, down })
            }
            _ => None,
        })
    }

    fn launch(&self, cuda: &Cuda, call: &Experts) -> Result<()> {
        let Experts { route, weights: experts, x, scratch, epilogue, y } = call;
        let (tokens, k, act) = (x.rows(), route.routing.top_k, &*scratch.act);
        let ([gate, up], down) = (self.gate_up, self.down);

        let params = self.params(gate, ProductEpilogue::Gate(experts.activation), 0)?;
        let biases = experts.gate_up_bias.map(|both| both.map(|values| of_bias(values, gate)));
        let [gate_bias, up_bias] = biases.map_or([Arg::Null; 2], |both| both.map(|bias| bias_arg(Some(bias))));
        let [exact, of_int8, bf16] = act.storage::<GpuAct>(OP)?.outputs();
        let int8 = reads_int8(gate, x);
        let (input, scores) = (x_arg(x, int8)?, Arg::read(&route.logits));
        let (ids, weights, params) = (Arg::write(&route.ids), Arg::write(&route.weights), Arg::params(&params));
        cuda.device.launch(&Launch {
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

        let epilogue = ProductEpilogue::from(*epilogue);
        let params = self.params(down, epilogue, y.layout().stride())?;
        let bias = bias_arg(experts.down_bias.map(|values| of_bias(values, down)));
        let int8 = reads_int8(down, act);
        let (input, y, params) = (x_arg(act, int8)?, epilogue.output(y), Arg::params(&params));
        cuda.device.launch(&Launch {
            kernel: Kernel { file: FILE, entry: "experts_down", defines: &defines(down.format, int8, self.per_lane) },
            grid: [word(OP, "blocks of outputs", down.rows.div_ceil(DOWN_ROWS))?, tokens as u32, 1],
            block: 32 * k.min(DOWN_WARPS) as u32,
            shared: 0,
            overlap: true,
            args: &[down.arg(), input, scores, bias, y, params],
        })
    }

    fn params(&self, w: &PlaneRows, epilogue: ProductEpilogue, y_stride: usize) -> Result<ExpertsParams> {
        Ok(ExpertsParams {
            route: self.route,
            row_bytes: w.row_bytes as u64,
            matrix_bytes: w.matrix_bytes() as u64,
            bias_stride: w.rows as u64,
            y_stride: y_stride as u64,
            outputs: word(OP, "outputs", w.rows)?,
            blocks: word(OP, "blocks in a row", w.blocks())?,
            cols: word(OP, "columns", w.cols)?,
            epilogue: epilogue.into(),
        })
    }
}

fn of_bias<'a>(values: &'a Buffer<f32>, w: &PlaneRows) -> Bias<'a> {
    Bias { values, first: 0, matrix: w.rows }
}

//! The experts of few tokens in two launches: the host side of `kernels/experts.h`.

use super::gemv::{BLOCK, FILE, GATE_ROWS, team_log2};
use super::matmul::act_output;
use gristmill_gpu::common::route::{self, RouteParams};
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::layout::{PlaneRows, pair, parts};
use gristmill_gpu::product::{Bias, ProductParams, RowSelection, bias_arg, word};
use gristmill_gpu::shared_struct;
use gristmill_gpu::storage::GpuAct;
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;

use gristmill_gpu::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{Experts, Fused, Operation};
use gristmill_kernels::tensor::ViewMut;

const OP: &str = Experts::NAME;
/// Tokens that are few. An expert of several tokens is read for each, from the cache: of 128 experts and 8 of them for each
/// token, four tokens have 29 different ones in 32.
const FEW: usize = 4;
/// Experts that a simdgroup's lanes hold, as in the text.
const MOST_EXPERTS: u32 = 32 * 8;
/// As in the text: simdgroups of a block that multiplies `down`, at most, and rows of a team.
const DOWN_WARPS: usize = 8;
const DOWN_ROWS: usize = 4;

shared_struct! {
    #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(super) struct ExpertsParams in "experts.h" {
        route: RouteParams,
        product: ProductParams,
    }
}

/// [`Experts`] in two launches, for few tokens; `h` is left as it is.
pub(super) fn experts(device: &Device, call: &mut Experts) -> Result<Fused> {
    Few::new(call)?.map_or(Ok(Fused::No), |few| few.launch(device, call).map(|()| Fused::Yes))
}

/// What the two kernels for few tokens need.
struct Few<'a> {
    route: RouteParams,
    gate_up: [&'a PlaneRows; 2],
    down: &'a PlaneRows,
}

impl<'a> Few<'a> {
    fn new(call: &Experts<'a>) -> Result<Option<Self>> {
        let Experts { route: routed, weights, x, .. } = call;
        let route = RouteParams::new(routed)?;
        let plain = route::plain(&route).is_some() && route.experts <= MOST_EXPERTS;
        let (gate_up, down) = (pair(OP, weights.gate_up)?, parts(OP, weights.down)?);
        let one_format = gate_up[0].format == gate_up[1].format;
        Ok(match down {
            [down] if plain && one_format && (1..=FEW).contains(&x.rows()) => Some(Self { route, gate_up, down }),
            _ => None,
        })
    }

    fn launch(&self, device: &Device, call: &mut Experts) -> Result<()> {
        let Experts { route, weights: experts, x, scratch, epilogue, y } = call;
        let ([gate, up], down, act) = (self.gate_up, self.down, &mut *scratch.act);
        let (tokens, k) = (x.rows(), route.routing.top_k);
        let logits = Arg::read(&route.logits);

        let h = act_output(OP, act, tokens * k, gate.rows)?;
        let biases = Bias::both(experts.gate_up_bias, gate.rows);
        let activation = ProductEpilogue::Gate(experts.activation);
        let params = self.params(gate, x, biases[0], activation, &h)?;
        let [gate_bias, up_bias] = biases.map(bias_arg);
        let (rows, product) = (GATE_ROWS * (BLOCK >> team_log2(gate.spans)), Arg::params(&params));
        let (ids, weights) = (Arg::write(&route.ids), Arg::write(&route.weights));
        let input = x.storage::<GpuAct>(OP)?.exact(Access::Read);
        let args = [gate.arg(), up.arg(), input, logits, gate_bias, up_bias, ids, weights, Arg::write(&h), product];
        launch(device, "experts_gate_up", gate, rows, tokens * k, BLOCK, &args)?;

        let bias = experts.down_bias.map(|values| Bias { values, first: 0, matrix: down.rows });
        let epilogue = ProductEpilogue::from(*epilogue);
        let params = self.params(down, act, bias, epilogue, y)?;
        let (rows, product) = (DOWN_ROWS * (32 >> team_log2(down.spans)), Arg::params(&params));
        let input = act.storage::<GpuAct>(OP)?.exact(Access::Read);
        let args = [down.arg(), input, logits, bias_arg(bias), epilogue.output(y), product];
        launch(device, "experts_down", down, rows, tokens, 32 * k.min(DOWN_WARPS), &args)
    }

    fn params(
        &self,
        w: &PlaneRows,
        x: &Act,
        bias: Option<Bias>,
        epilogue: ProductEpilogue,
        y: &ViewMut<f32>,
    ) -> Result<ExpertsParams> {
        let (which, stride) = (RowSelection::All, y.layout().stride());
        let product = ProductParams::new(OP, w, x, which, bias, team_log2(w.spans), epilogue, stride, y.rows())?;
        Ok(ExpertsParams { route: self.route, product })
    }
}

/// Blocks of so many rows of a weight along x, and `tasks` along y.
fn launch(
    device: &Device,
    entry: &'static str,
    w: &PlaneRows,
    rows: usize,
    tasks: usize,
    block: usize,
    args: &[Arg],
) -> Result<()> {
    device.launch(&Launch {
        kernel: Kernel { file: FILE, entry, defines: &[("FORMAT", w.format.name())] },
        grid: [word(OP, "blocks of outputs", w.rows.div_ceil(rows))?, word(OP, "pairs", tasks)?, 1],
        block: block as u32,
        shared: 0,
        overlap: true,
        args,
    })
}

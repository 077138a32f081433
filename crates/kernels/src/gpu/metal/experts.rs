//! The experts of few tokens in two launches: the host side of `kernels/experts.h`; and those of many, one operation after the
//! other.

use super::gemv::{BLOCK, FILE, GATE_ROWS, team_log2};
use super::matmul::prepared;
use super::moe;
use crate::act::Act;
use crate::error::Result;
use crate::gpu::finish::Finish;
use crate::gpu::layout::{Rows, pair, parts};
use crate::gpu::product::{Bias, ProductParams, Which, bias_arg, word};
use crate::gpu::small::elementwise;
use crate::gpu::small::route::{self, RouteParams};
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
use crate::ops::{Experts, ExpertsRoom, Routing};
use crate::tensor::{View, ViewMut};

const OP: &str = "experts";
/// Tokens that are few. An expert of several tokens is read for each, from the cache: of 128 experts and 8 of them for each
/// token, four tokens have 29 different ones in 32.
const FEW: usize = 4;
/// Experts that a simdgroup's lanes hold, as in the text.
const MOST_EXPERTS: u32 = 32 * 8;
/// As in the text: simdgroups of a block that multiplies `down`, at most, and rows of a team.
const DOWN_WARPS: usize = 8;
const DOWN_ROWS: usize = 4;

twin! {
    #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(super) struct ExpertsParams in "experts.h" {
        route: RouteParams,
        product: ProductParams,
    }
}

/// [`crate::ops::Backend::experts`], checked: `h` is left as it is.
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
    match Few::new(experts, x, &logits, routing, &room)? {
        Some(few) => few.launch(device, experts, x, logits, room, finish, y),
        None => many(device, experts, x, logits, routing, room, finish, y),
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
    let ExpertsRoom { mut ids, mut weights, groups, act, mut out, .. } = room;
    let k = routing.top_k;
    route::route_and_group(device, logits, routing, None, ids.reborrow(), weights.reborrow(), groups)?;
    let h = prepared(act, ids.rows() * k, experts.gate_up.rows())?;
    moe::moe_gate_up(device, experts.gate_up, x, groups, k, experts.gate_up_bias, experts.activation, h)?;
    moe::moe_matmul(device, experts.down, act, groups, k, experts.down_bias, out.reborrow())?;
    elementwise::moe_combine(device, out.as_view(), weights.as_view(), finish, y)
}

/// Few tokens, for which the two kernels are.
struct Few<'a> {
    route: RouteParams,
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
        let plain = route::plain(&route).is_some() && route.experts <= MOST_EXPERTS;
        let (gate_up, down) = (pair(OP, experts.gate_up)?, parts(OP, experts.down)?);
        let one_format = gate_up[0].format == gate_up[1].format;
        Ok(match down {
            [down] if plain && one_format && (1..=FEW).contains(&x.rows) => Some(Self { route, gate_up, down }),
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
        let ([gate, up], down) = (self.gate_up, self.down);
        let (tokens, k) = (x.rows, weights.cols());
        let logits = Arg::read(&logits);

        let h = prepared(act, tokens * k, gate.rows)?;
        let biases = Bias::both(experts.gate_up_bias, gate.rows);
        let activation = Finish::Gate(experts.activation);
        let params = self.params(gate, x, biases[0], activation, &h)?;
        let [gate_bias, up_bias] = biases.map(bias_arg);
        let (rows, product) = (GATE_ROWS * (BLOCK >> team_log2(gate.spans)), Arg::params(&params));
        let (ids, weights) = (Arg::write(&ids), Arg::write(&weights));
        let x = Arg::buffer(&x.exact, Access::Read);
        let args = [gate.arg(), up.arg(), x, logits, gate_bias, up_bias, ids, weights, Arg::write(&h), product];
        launch(device, "experts_gate_up", gate, rows, tokens * k, BLOCK, &args)?;

        let bias = experts.down_bias.map(|values| Bias { values, first: 0, matrix: down.rows });
        let params = self.params(down, act, bias, finish, &y)?;
        let (rows, product) = (DOWN_ROWS * (32 >> team_log2(down.spans)), Arg::params(&params));
        let x = Arg::buffer(&act.exact, Access::Read);
        let args = [down.arg(), x, logits, bias_arg(bias), finish.output(&y), product];
        launch(device, "experts_down", down, rows, tokens, 32 * k.min(DOWN_WARPS), &args)
    }

    fn params(&self, w: &Rows, x: &Act, bias: Option<Bias>, finish: Finish, y: &ViewMut<f32>) -> Result<ExpertsParams> {
        let (which, stride) = (Which::All, y.shape().stride());
        let product = ProductParams::new(OP, w, x, which, bias, team_log2(w.spans), finish, stride, y.rows())?;
        Ok(ExpertsParams { route: self.route, product })
    }
}

/// Blocks of so many rows of a weight along x, and `tasks` along y.
fn launch(
    device: &Device,
    entry: &'static str,
    w: &Rows,
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

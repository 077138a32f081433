//! Routing: `kernels/route.h`; and with grouping at once: `kernels/route_and_group.h`.

use super::group::{self, GroupParams};
use super::{MOST_BLOCKS, count};
use gristmill_kernels::error::Result;

use crate::{Arg, Device, Kernel, Launch, Unit};
use gristmill_kernels::groups::GroupLists;
use gristmill_kernels::ops::{Fused, Gating, Operation, Route};

const FILE: &str = "route.gpu";

shared_struct! {
    /// Sizes and strides of a router, and its rules.
    pub struct RouteParams in "route.h" {
        logits_stride: u64,
        ids_stride: u64,
        weights_stride: u64,
        tokens_stride: u64,
        rows: u32,
        /// Experts to choose from.
        pub experts: u32,
        top_k: u32,
        gating: u32,
        groups: u32,
        top_groups: u32,
        normalise: u32,
        whole: u32,
        scale: f32,
        near: f32,
        biased: u32,
        padded: u32,
    }
}

impl RouteParams {
    /// Parameters of a call that is checked.
    pub fn new(call: &Route) -> Result<Self> {
        let Route { logits, routing, selection_bias, tokens, ids, weights } = call;
        let biased = selection_bias.is_some();
        let (gating, near) = match routing.gating {
            Gating::Softmax => (0, 0.0),
            Gating::SoftmaxOfChosen => (1, 0.0),
            Gating::Sigmoid => (2, 0.0),
            Gating::SparseMixer { near } => (3, near),
        };
        let grouped = routing.top_groups < routing.groups;
        Ok(Self {
            logits_stride: logits.layout().stride() as u64,
            ids_stride: ids.layout().stride() as u64,
            weights_stride: weights.layout().stride() as u64,
            tokens_stride: tokens.map_or(0, |tokens| tokens.layout().stride()) as u64,
            rows: count(Route::NAME, "rows", logits.rows(), MOST_BLOCKS)?,
            experts: logits.cols() as u32,
            top_k: routing.top_k as u32,
            gating,
            groups: if grouped { routing.groups as u32 } else { 0 },
            top_groups: if grouped { routing.top_groups as u32 } else { 0 },
            normalise: routing.normalise.into(),
            // The chosen hold the largest logit, unless something else than logits has chosen.
            whole: (biased || grouped || !routing.normalise).into(),
            scale: routing.scale,
            near,
            biased: biased.into(),
            padded: tokens.is_some().into(),
        })
    }
}

/// The definitions of a unit, and bytes of shared memory that a warp then needs.
struct Form {
    defines: &'static [(&'static str, &'static str)],
    scratch: u32,
    /// Threads of a block that routes and groups: `ROUTE_AND_GROUP_THREADS`.
    threads: usize,
}

/// Where logits alone choose, and no more than a warp has lanes, they are in registers: so many in each lane.
const PER_LANE: [(usize, &[(&str, &str)]); 3] =
    [(4, &[("EXPERTS_PER_LANE", "4")]), (8, &[("EXPERTS_PER_LANE", "8")]), (32, &[("EXPERTS_PER_LANE", "32")])];

impl Form {
    fn new(params: &RouteParams) -> Self {
        let plain = params.biased == 0 && params.groups == 0 && params.gating <= 1 && params.top_k <= 32;
        let fits = PER_LANE.iter().find(|(each, _)| plain && params.experts as usize <= 32 * each);
        match fits {
            Some((each, defines)) => Self { defines, scratch: 0, threads: if *each <= 8 { 1024 } else { 512 } },
            // `route_words` in the source.
            None => {
                let scratch = 4 * (2 * (params.experts + params.groups) + 3 * params.top_k);
                Self { defines: &[], scratch, threads: 512 }
            }
        }
    }

    /// Warps of a block, each with a token, for so many: what fits this shared memory.
    fn warps(&self, rows: u32, most: u32, shared: u32) -> u32 {
        let fit = shared.checked_div(self.scratch).unwrap_or(most);
        fit.min(most).min(rows).max(1)
    }
}

/// The experts per lane of a router whose logits alone choose, and that a warp keeps in registers.
pub fn plain(params: &RouteParams) -> Option<&'static str> {
    let form = Form::new(params);
    form.defines.first().map(|&(_, per_lane)| per_lane)
}

/// Every unit.
pub fn units() -> impl Iterator<Item = Unit> {
    let forms = PER_LANE.iter().map(|(_, defines)| *defines).chain([&[][..]]);
    forms.map(|defines| Unit::new(FILE, defines))
}

/// The tokens of a call as an argument.
pub fn tokens_arg<'a>(call: &'a Route) -> Arg<'a> {
    call.tokens.as_ref().map_or(Arg::Null, Arg::read)
}

/// Warps of a block, each with a token.
const WARPS: u32 = 4;

/// [`Route`].
pub fn route(device: &Device, call: &Route) -> Result<()> {
    let Route { logits, selection_bias, ids, weights, .. } = call;
    if logits.rows() == 0 {
        return Ok(());
    }
    let params = RouteParams::new(call)?;
    // 1,024 experts, all of them groups and all of them chosen, need 28 KiB: one warp always fits.
    let form = Form::new(&params);
    let warps = form.warps(params.rows, WARPS, device.shared(0));
    let (logits, bias) = (Arg::read(logits), Arg::optional(*selection_bias));
    let args = [logits, bias, tokens_arg(call), Arg::write(ids), Arg::write(weights), Arg::params(&params)];
    let kernel = Kernel { file: FILE, entry: "route", defines: form.defines };
    let launch = Launch::new(kernel, [params.rows.div_ceil(warps), 1, 1], 32 * warps, &args);
    device.launch(&Launch { shared: warps * form.scratch, ..launch })
}

shared_struct! {
    pub(super) struct RouteAndGroupParams in "route_and_group.h" {
        route: RouteParams,
        group: GroupParams,
    }
}

/// [`gristmill_kernels::ops::RouteAndGroup`] in one launch, for few tokens.
pub fn route_and_group(device: &Device, call: &Route, lists: &GroupLists) -> Result<Fused> {
    let Route { logits, routing, selection_bias, ids, weights, .. } = call;
    let (rows, experts) = (logits.rows(), logits.cols());
    let route = RouteParams::new(call)?;
    let form = Form::new(&route);
    let pairs = rows.saturating_mul(routing.top_k);
    // A warp for each token in one block.
    let block = group::threads(experts, pairs).max(rows.saturating_mul(32));
    let scratch = route.rows.saturating_mul(form.scratch);
    let fits = scratch <= device.shared(group::FIXED_BYTES) && block <= form.threads;
    if rows == 0 || !fits {
        return Ok(Fused::No);
    }
    let group = GroupParams::new(device, ids.layout(), experts, *lists.tile_rows, block)?;
    let params = RouteAndGroupParams { route, group };
    let [counts, sorted, tiles, tile_count] = group::list_args(lists);
    let (logits, bias) = (Arg::read(logits), Arg::optional(*selection_bias));
    let (tokens, ids, weights) = (tokens_arg(call), Arg::change(ids), Arg::write(weights));
    let args = [logits, bias, tokens, ids, weights, counts, sorted, tiles, tile_count, Arg::params(&params)];
    let kernel = Kernel { file: FILE, entry: "route_and_group", defines: form.defines };
    let shared = scratch.max(params.group.scratch());
    device.launch(&Launch { shared, ..Launch::new(kernel, [1; 3], block as u32, &args) })?;
    Ok(Fused::Yes)
}

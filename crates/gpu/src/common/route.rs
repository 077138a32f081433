//! Routing: `kernels/route.h`; and with grouping at once: `kernels/route_and_group.h`.

use super::grid::{MOST_BLOCKS, count};
use super::group::{self, GroupParams};
use gristmill_kernels::error::Result;

use crate::{Arg, Device, Kernel, Launch, Unit};
use gristmill_kernels::groups::GroupLists;
use gristmill_kernels::ops::{Fused, Gating, GroupWorth, Operation, Route};

const FILE: &str = "route.gpu";

shared_struct! {
    /// Sizes and strides of a router, and its rules.
    pub struct RouteParams {
        // Elements from one row to the next.
        logits_stride: u64,
        ids_stride: u64,
        weights_stride: u64,
        rows: u32,
        /// Experts to choose from.
        pub experts: u32,
        top_k: u32,
        gating: u32,
        // Expert groups, and the number of them that take part.
        groups: u32,
        top_groups: u32,
        normalise: u32,
        // Whether the sum over all experts is needed, or shares of the largest suffice.
        whole: u32,
        scale: f32,
        near: f32,
        // Whether there is a bias, whether experts have scales, and whether tokens are bound, because Metal does
        // not guarantee that an unbound argument is null.
        biased: u32,
        scaled: u32,
        padded: u32,
        // Elements from one token to the next.
        tokens_stride: u32,
        // The number of its highest scores that rank a group: 1 or 2.
        worth: u32,
        padding: u32,
    }
}

/// `SIGMOID` in `route.h`; what is larger has other rules than those of registers.
const SIGMOID: u32 = 2;

impl RouteParams {
    /// Parameters of a call that is checked.
    pub fn new(call: &Route) -> Result<Self> {
        let Route { logits, routing, selection_bias, expert_scales, tokens, ids, weights } = call;
        let biased = selection_bias.is_some();
        let (gating, near) = match routing.gating {
            Gating::Softmax => (0, 0.0),
            Gating::SoftmaxOfChosen => (1, 0.0),
            Gating::Sigmoid => (SIGMOID, 0.0),
            Gating::SparseMixer { near } => (3, near),
        };
        let grouped = routing.top_groups < routing.groups;
        let tokens_stride = tokens.map_or(0, |tokens| tokens.layout().stride());
        Ok(Self {
            logits_stride: logits.layout().stride() as u64,
            ids_stride: ids.layout().stride() as u64,
            weights_stride: weights.layout().stride() as u64,
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
            scaled: expert_scales.is_some().into(),
            padded: tokens.is_some().into(),
            tokens_stride: count(Route::NAME, "stride of the tokens", tokens_stride, u32::MAX as usize)?,
            worth: match routing.worth {
                GroupWorth::TwoHighest => 2,
                GroupWorth::Highest => 1,
            },
            padding: 0,
        })
    }
}

/// Definitions of a unit.
pub type Defines = &'static [(&'static str, &'static str)];

/// The definitions of a unit, and bytes of shared memory that a warp then needs.
struct RouteVariant {
    defines: Defines,
    scratch: u32,
    /// Threads of a block that routes and groups: `ROUTE_AND_GROUP_THREADS`.
    threads: usize,
}

/// A form with a token's experts in registers (`kernels/route_lanes.h`).
struct Lanes {
    /// Experts in each lane, at most.
    each: usize,
    /// Whether scores choose: with sigmoids, a bias or groups. Else logits alone.
    scored: bool,
    /// Whether experts have scales. No model has these with scores.
    scaled: bool,
    defines: Defines,
}

/// The form where logits alone choose.
macro_rules! by_logits {
    ($each:literal, $experts:literal) => {{
        let defines = &[("EXPERTS_PER_LANE", $experts), ("SCORED", "0"), ("EXPERT_SCALES", "0")];
        Lanes { each: $each, scored: false, scaled: false, defines }
    }};
}

/// Where scores choose.
macro_rules! by_scores {
    ($each:literal, $experts:literal) => {{
        let defines = &[("EXPERTS_PER_LANE", $experts), ("SCORED", "1"), ("EXPERT_SCALES", "0")];
        Lanes { each: $each, scored: true, scaled: false, defines }
    }};
}

/// Where logits alone choose, and experts have scales.
macro_rules! with_scales {
    ($each:literal, $experts:literal) => {{
        let defines = &[("EXPERTS_PER_LANE", $experts), ("SCORED", "0"), ("EXPERT_SCALES", "1")];
        Lanes { each: $each, scored: false, scaled: true, defines }
    }};
}

/// All forms, those of few experts first. The fewer there are, the sooner all kernels are compiled.
const LANES: [Lanes; 10] = [
    by_logits!(4, "4"),
    by_logits!(8, "8"),
    by_logits!(16, "16"),
    by_logits!(32, "32"),
    by_scores!(4, "4"),
    by_scores!(8, "8"),
    by_scores!(32, "32"),
    with_scales!(4, "4"),
    with_scales!(8, "8"),
    with_scales!(32, "32"),
];

/// The form in registers for these rules, if there is one.
fn lanes(params: &RouteParams) -> Option<&'static Lanes> {
    // A lane has a slot, and a group.
    let rules = params.gating <= SIGMOID && params.top_k <= 32 && params.groups <= 32;
    let scored = params.gating == SIGMOID || params.biased > 0 || params.groups > 0;
    let rules_of = |form: &Lanes| (form.scored, form.scaled) == (scored, params.scaled > 0);
    let fits = |form: &&Lanes| rules_of(form) && params.experts as usize <= 32 * form.each;
    LANES.iter().filter(|_| rules).find(fits)
}

impl RouteVariant {
    fn new(params: &RouteParams) -> Self {
        if let Some(&Lanes { each, scored, defines, .. }) = lanes(params) {
            return Self { defines, scratch: 0, threads: if each <= 8 && !scored { 1024 } else { 512 } };
        }
        // `route_words` in the source.
        let scratch = 4 * (2 * (params.experts + params.groups) + 3 * params.top_k);
        Self { defines: &[], scratch, threads: 512 }
    }

    /// Warps of a block, each with a token, for so many: what fits this shared memory.
    fn warps(&self, rows: u32, most: u32, shared: u32) -> u32 {
        let fit = shared.checked_div(self.scratch).unwrap_or(most);
        fit.min(most).min(rows).max(1)
    }
}

/// The definitions of a kernel whose warps route with at most this number of experts in each lane, if they can by these
/// rules.
pub fn lane_defines(params: &RouteParams, most: usize) -> Option<Defines> {
    lanes(params).filter(|form| form.each <= most).map(|form| form.defines)
}

/// All definitions for at most this number of experts in each lane.
pub fn all_lane_defines(most: usize) -> impl Iterator<Item = Defines> {
    LANES.iter().filter(move |form| form.each <= most).map(|form| form.defines)
}

/// Every unit.
pub fn units() -> impl Iterator<Item = Unit> {
    all_lane_defines(usize::MAX).chain([&[][..]]).map(|defines| Unit::new(FILE, defines))
}

/// The selection bias of a call, its experts' scales, and its tokens, as arguments.
pub fn optional_args<'a>(call: &'a Route) -> [Arg<'a>; 3] {
    let tokens = call.tokens.as_ref().map_or(Arg::Null, Arg::read);
    [Arg::optional(call.selection_bias), Arg::optional(call.expert_scales), tokens]
}

/// Warps of a block, each with a token.
const WARPS: u32 = 4;

/// [`Route`].
pub fn route(device: &Device, call: &Route) -> Result<()> {
    let Route { logits, ids, weights, .. } = call;
    if logits.rows() == 0 {
        return Ok(());
    }
    let params = RouteParams::new(call)?;
    // 1,024 experts, all of them groups and all of them chosen, need 28 KiB: one warp always fits.
    let form = RouteVariant::new(&params);
    let warps = form.warps(params.rows, WARPS, device.shared(0));
    let [bias, scales, tokens] = optional_args(call);
    let args = [Arg::read(logits), bias, scales, tokens, Arg::write(ids), Arg::write(weights), Arg::params(&params)];
    let kernel = Kernel { file: FILE, entry: "route", defines: form.defines };
    let launch = Launch::new(kernel, [params.rows.div_ceil(warps), 1, 1], 32 * warps, &args);
    device.launch(&Launch { shared: warps * form.scratch, ..launch })
}

shared_struct! {
    pub(super) struct RouteAndGroupParams {
        route: RouteParams,
        group: GroupParams,
    }
}

/// [`gristmill_kernels::ops::RouteAndGroup`] in one launch, for few tokens.
pub fn route_and_group(device: &Device, call: &Route, lists: &GroupLists) -> Result<Fused> {
    let Route { logits, routing, ids, weights, .. } = call;
    let (rows, experts) = (logits.rows(), lists.counts.len());
    let route = RouteParams::new(call)?;
    let form = RouteVariant::new(&route);
    let pairs = rows.saturating_mul(routing.top_k);
    // A warp for each token in one block.
    let block = group::threads(experts, pairs).max(rows.saturating_mul(32));
    let scratch = route.rows.saturating_mul(form.scratch);
    let fits = scratch <= device.shared(group::FIXED_BYTES) && block <= form.threads;
    if rows == 0 || !fits {
        return Ok(Fused::No);
    }
    let group = GroupParams::new(device, ids.layout(), lists, block)?;
    let params = RouteAndGroupParams { route, group };
    let [counts, sorted, tiles, tile_count] = group::list_args(lists);
    let [bias, scales, tokens] = optional_args(call);
    let logits = Arg::read(logits);
    let (ids, weights) = (Arg::change(ids), Arg::write(weights));
    let args = [logits, bias, scales, tokens, ids, weights, counts, sorted, tiles, tile_count, Arg::params(&params)];
    let kernel = Kernel { file: FILE, entry: "route_and_group", defines: form.defines };
    let shared = scratch.max(params.group.scratch());
    device.launch(&Launch { shared, ..Launch::new(kernel, [1; 3], block as u32, &args) })?;
    Ok(Fused::Yes)
}

//! Routing: `kernels/route.h`; and with grouping at once: `kernels/route_and_group.h`.

use super::group::{self, GroupParams};
use super::{MOST_BLOCKS, count};
use crate::error::Result;
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch, Text};
use crate::ops::{Gating, Groups, Routing, SelectionBias};
use crate::tensor::{View, ViewMut};
use bytemuck::{Pod, Zeroable};

const FILE: &str = "route.gpu";

twin! {
    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    pub(crate) struct RouteParams in "route.h" {
        logits_stride: u64,
        ids_stride: u64,
        weights_stride: u64,
        rows: u32,
        pub(crate) experts: u32,
        top_k: u32,
        gating: u32,
        groups: u32,
        top_groups: u32,
        normalise: u32,
        whole: u32,
        scale: f32,
        near: f32,
        biased: u32,
        padding: u32,
    }
}

impl RouteParams {
    pub(crate) fn new(
        logits: &View<f32>,
        routing: &Routing,
        biased: bool,
        ids: &ViewMut<u32>,
        weights: &ViewMut<f32>,
    ) -> Result<Self> {
        let (gating, near) = match routing.gating {
            Gating::Softmax => (0, 0.0),
            Gating::SoftmaxOfChosen => (1, 0.0),
            Gating::Sigmoid => (2, 0.0),
            Gating::SparseMixer { near } => (3, near),
        };
        let grouped = routing.top_groups < routing.groups;
        Ok(Self {
            logits_stride: logits.shape().stride() as u64,
            ids_stride: ids.shape().stride() as u64,
            weights_stride: weights.shape().stride() as u64,
            rows: count("route", "rows", logits.rows(), MOST_BLOCKS)?,
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
            padding: 0,
        })
    }
}

/// What the text is compiled with, and bytes of shared memory that a warp then needs.
struct Form {
    defines: &'static [(&'static str, &'static str)],
    room: u32,
    /// Threads of a block that routes and groups: `ROUTE_AND_GROUP_THREADS`.
    threads: usize,
}

/// Where logits alone choose, and no more than a warp has lanes, they are in registers: so many in each lane.
const PER_LANE: [(usize, &[(&str, &str)]); 3] =
    [(4, &[("EXPERTS_PER_LANE", "4")]), (8, &[("EXPERTS_PER_LANE", "8")]), (32, &[("EXPERTS_PER_LANE", "32")])];

impl Form {
    fn new(params: &RouteParams, biased: bool) -> Self {
        let plain = !biased && params.groups == 0 && params.gating <= 1 && params.top_k <= 32;
        let fits = PER_LANE.iter().find(|(each, _)| plain && params.experts as usize <= 32 * each);
        match fits {
            Some((each, defines)) => Self { defines, room: 0, threads: if *each <= 8 { 1024 } else { 512 } },
            // `route_words` in the text.
            None => {
                let room = 4 * (2 * (params.experts + params.groups) + 3 * params.top_k);
                Self { defines: &[], room, threads: 512 }
            }
        }
    }

    /// Warps of a block, each with a token, for so many: what fits this shared memory.
    fn warps(&self, rows: u32, most: u32, shared: u32) -> u32 {
        let fit = shared.checked_div(self.room).unwrap_or(most);
        fit.min(most).min(rows).max(1)
    }
}

/// What the text is compiled with for a router whose logits alone choose, and that a warp keeps in registers.
pub(crate) fn plain(params: &RouteParams) -> Option<&'static str> {
    let form = Form::new(params, false);
    form.defines.first().map(|&(_, per_lane)| per_lane)
}

/// Every compilation of the text.
pub(crate) fn texts() -> impl Iterator<Item = Text> {
    let forms = PER_LANE.iter().map(|(_, defines)| *defines).chain([&[][..]]);
    forms.map(|defines| Kernel { file: FILE, entry: "route", defines }.text())
}

/// Warps of a block, each with a token.
const WARPS: u32 = 4;

/// [`crate::ops::Backend::route`], checked.
pub(crate) fn route(
    device: &Device,
    logits: View<f32>,
    routing: &Routing,
    bias: SelectionBias,
    ids: ViewMut<u32>,
    weights: ViewMut<f32>,
) -> Result<()> {
    if logits.rows() == 0 {
        return Ok(());
    }
    let params = RouteParams::new(&logits, routing, bias.is_some(), &ids, &weights)?;
    // 1,024 experts, all of them groups and all of them chosen, need 28 KiB: one warp always fits.
    let form = Form::new(&params, bias.is_some());
    let warps = form.warps(params.rows, WARPS, device.shared(0));
    let args = [Arg::read(&logits), Arg::optional(bias), Arg::write(&ids), Arg::write(&weights), Arg::params(&params)];
    device.launch(&Launch {
        kernel: Kernel { file: FILE, entry: "route", defines: form.defines },
        grid: [params.rows.div_ceil(warps), 1, 1],
        block: 32 * warps,
        shared: warps * form.room,
        overlap: true,
        args: &args,
    })
}

twin! {
    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    pub(super) struct RouteAndGroupParams in "route_and_group.h" {
        route: RouteParams,
        group: GroupParams,
    }
}

/// [`crate::ops::Backend::route_and_group`], checked: at once for few tokens, else one after the other.
pub(crate) fn route_and_group(
    device: &Device,
    logits: View<f32>,
    routing: &Routing,
    bias: SelectionBias,
    mut ids: ViewMut<u32>,
    weights: ViewMut<f32>,
    groups: &mut Groups,
) -> Result<()> {
    let (rows, experts) = (logits.rows(), logits.cols());
    let route = RouteParams::new(&logits, routing, bias.is_some(), &ids, &weights)?;
    let form = Form::new(&route, bias.is_some());
    let pairs = rows.saturating_mul(routing.top_k);
    // A warp for each token in one block.
    let block = group::threads(experts, pairs).max(rows.saturating_mul(32));
    let room = route.rows.saturating_mul(form.room);
    let fits = room <= device.shared(group::FIXED_BYTES) && block <= form.threads;
    if rows == 0 || !fits {
        self::route(device, logits, routing, bias, ids.reborrow(), weights)?;
        return group::group_by_expert(device, ids.as_view(), experts, groups);
    }
    let params =
        RouteAndGroupParams { route, group: GroupParams::new(device, ids.shape(), experts, groups.tile_rows, block)? };
    let write = |buffer| Arg::buffer(buffer, Access::Write);
    device.launch(&Launch {
        kernel: Kernel { file: FILE, entry: "route_and_group", defines: form.defines },
        grid: [1; 3],
        block: block as u32,
        shared: room.max(params.group.room()),
        overlap: true,
        args: &[
            Arg::read(&logits),
            Arg::optional(bias),
            Arg::change(&ids),
            Arg::write(&weights),
            write(&groups.counts),
            write(&groups.pairs),
            write(&groups.tiles),
            write(&groups.tile_count),
            Arg::params(&params),
        ],
    })?;
    group::has_sorted(groups, pairs);
    Ok(())
}

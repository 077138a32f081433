//! Routing, grouping and expert operations.

use super::{
    MAX_EXPERTS, PADDING, activation, at_least, columns_of, elements, finish, homes, ids, prepare_activations, require,
    role, vector,
};
use crate::act::Act;
use crate::error::{Result, expect};
use crate::ops::{Experts, ExpertsRoom, Finish, Gating, Groups, Routing, SelectionBias};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Role, Weight};

/// [`crate::ops::Backend::route`].
pub(crate) fn route(
    device: DeviceId,
    logits: &View<f32>,
    routing: &Routing,
    bias: SelectionBias,
    ids: &ViewMut<u32>,
    weights: &ViewMut<f32>,
) -> Result<()> {
    let op = "route";
    homes(op, device, &[logits.device(), ids.device(), weights.device()])?;
    let (experts, Routing { top_k, groups, top_groups, .. }) = (logits.cols(), *routing);
    expect(op, "rows of the ids", ids.rows(), logits.rows())?;
    expect(op, "rows of the weights", weights.rows(), logits.rows())?;
    if logits.rows() == 0 {
        return Ok(());
    }
    require((1..=MAX_EXPERTS).contains(&experts), op, "experts", experts, "1 to 1024 are supported")?;
    require((1..=experts).contains(&top_k), op, "top-k", top_k, "from 1 to the number of experts")?;
    let divides = groups > 0 && experts.is_multiple_of(groups);
    require(divides, op, "expert groups", groups, "must divide the number of experts")?;
    require((1..=groups).contains(&top_groups), op, "top groups", top_groups, "from 1 to the number of groups")?;
    let enough = top_groups * (experts / groups) >= top_k;
    require(enough, op, "top-k", top_k, "the chosen groups must hold that many experts")?;
    if let Gating::SparseMixer { near } = routing.gating {
        require(near.is_finite() && near >= 0.0, op, "near", near, "must be finite and not negative")?;
    }
    expect(op, "columns of the ids", ids.cols(), top_k)?;
    expect(op, "columns of the weights", weights.cols(), top_k)?;
    bias.map_or(Ok(()), |b| vector(op, "length of the selection bias", device, b, experts))
}

/// [`crate::ops::Backend::group_by_expert`].
pub(crate) fn group_by_expert(device: DeviceId, pairs: &View<u32>, experts: usize, groups: &Groups) -> Result<()> {
    let op = "group_by_expert";
    homes(op, device, &[pairs.device(), groups.counts.device()])?;
    expect(op, "experts", experts, groups.counts.len())?;
    let count = elements("pairs", &[pairs.rows(), pairs.cols()])?;
    require(count < PADDING as usize, op, "pairs", count, "must be below 2^32 - 1")?;
    at_least(op, "room for pairs", groups.pairs.len(), count)?;
    ids(op, "expert", pairs, experts, true)
}

/// What [`moe_matmul`] and [`moe_gate_up`] share: groups fit the weight, and the output has one row per pair.
fn moe(op: &'static str, w: &Weight, x: &Act, groups: &Groups, top_k: usize, out: &ViewMut<f32>) -> Result<usize> {
    require(top_k > 0, op, "top-k", top_k, "must not be 0")?;
    expect(op, "experts of the groups", groups.counts.len(), w.experts())?;
    expect(op, "rows of the output", out.rows(), groups.total_pairs)?;
    require(out.rows().is_multiple_of(top_k), op, "top-k", top_k, "must divide the number of pairs")?;
    expect(op, "columns of the activations", x.cols(), w.cols())?;
    columns_of(op, "columns of the output", out, w.rows())?;
    Ok(out.rows() / top_k)
}

/// [`crate::ops::Backend::moe_matmul`].
pub(crate) fn moe_matmul(
    device: DeviceId,
    w: &Weight,
    x: &Act,
    groups: &Groups,
    top_k: usize,
    bias: Option<&Buffer<f32>>,
    out: &ViewMut<f32>,
) -> Result<()> {
    let op = "moe_matmul";
    homes(op, device, &[w.device(), x.device(), groups.counts.device(), out.device()])?;
    role(op, w, Role::Matrix)?;
    let tokens = moe(op, w, x, groups, top_k, out)?;
    if x.rows() != out.rows() {
        expect(op, "rows of the activations", x.rows(), tokens)?;
    }
    let len = elements("bias", &[w.experts(), w.rows()])?;
    bias.map_or(Ok(()), |b| vector(op, "length of the bias", device, b, len))
}

/// [`crate::ops::Backend::moe_gate_up`].
pub(crate) fn moe_gate_up(
    device: DeviceId,
    w: &Weight,
    x: &Act,
    groups: &Groups,
    top_k: usize,
    bias: Option<[&Buffer<f32>; 2]>,
    h: &ViewMut<f32>,
) -> Result<()> {
    let op = "moe_gate_up";
    homes(op, device, &[w.device(), x.device(), groups.counts.device(), h.device()])?;
    role(op, w, Role::GateUp)?;
    let tokens = moe(op, w, x, groups, top_k, h)?;
    expect(op, "rows of the activations", x.rows(), tokens)?;
    let len = elements("bias", &[w.experts(), w.rows()])?;
    bias.into_iter().flatten().try_for_each(|b| vector(op, "length of a bias", device, b, len))
}

/// [`crate::ops::Backend::moe_combine`].
pub(crate) fn moe_combine(device: DeviceId, out: &View<f32>, weights: &View<f32>, y: &ViewMut<f32>) -> Result<()> {
    let op = "moe_combine";
    homes(op, device, &[out.device(), weights.device(), y.device()])?;
    expect(op, "rows of the weights", weights.rows(), y.rows())?;
    expect(op, "rows of the pairs", out.rows(), elements("pairs", &[weights.rows(), weights.cols()])?)?;
    if out.rows() == 0 { Ok(()) } else { expect(op, "columns of the output", y.cols(), out.cols()) }
}

/// [`crate::ops::Backend::experts`].
pub(crate) fn experts(
    device: DeviceId,
    experts: &Experts,
    x: &Act,
    logits: &View<f32>,
    routing: &Routing,
    room: &ExpertsRoom,
    how: &Finish,
    y: &ViewMut<f32>,
) -> Result<()> {
    let (op, tokens) = ("experts", logits.rows());
    let Experts { gate_up, down, .. } = *experts;
    let ExpertsRoom { ids, weights, groups, h, act, out } = room;
    route(device, logits, routing, None, ids, weights)?;
    let places = [gate_up, down].map(Weight::device);
    homes(op, device, &places)?;
    homes(op, device, &[x.device(), groups.counts.device(), h.device(), out.device(), y.device()])?;
    role(op, gate_up, Role::GateUp)?;
    role(op, down, Role::Matrix)?;
    for (what, found) in [
        ("experts of the groups", groups.counts.len()),
        ("experts of gate and up", gate_up.experts()),
        ("experts of down", down.experts()),
    ] {
        if tokens > 0 {
            expect(op, what, found, logits.cols())?;
        }
    }
    let pairs = elements("pairs", &[tokens, routing.top_k])?;
    require(pairs < PADDING as usize, op, "pairs", pairs, "must be below 2^32 - 1")?;
    at_least(op, "room for pairs", groups.pairs.len(), pairs)?;
    expect(op, "rows of the activations", x.rows(), tokens)?;
    expect(op, "columns of the activations", x.cols(), gate_up.cols())?;
    expect(op, "columns of down", down.cols(), gate_up.rows())?;
    expect(op, "rows of the gated activations", h.rows(), pairs)?;
    columns_of(op, "columns of the gated activations", h, gate_up.rows())?;
    prepare_activations(device, &h.as_view(), act)?;
    expect(op, "rows of the experts' answers", out.rows(), pairs)?;
    columns_of(op, "columns of the experts' answers", out, down.rows())?;
    expect(op, "rows of the output", y.rows(), tokens)?;
    columns_of(op, "columns of the output", y, down.rows())?;
    activation(op, experts.activation)?;
    finish(device, how, y)?;
    let len = elements("bias", &[gate_up.experts(), gate_up.rows()])?;
    let both = experts.gate_up_bias.into_iter().flatten();
    both.into_iter().try_for_each(|b| vector(op, "length of a bias", device, b, len))?;
    let len = elements("bias", &[down.experts(), down.rows()])?;
    experts.down_bias.map_or(Ok(()), |b| vector(op, "length of the bias", device, b, len))
}

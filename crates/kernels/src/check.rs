//! What every backend refuses: one function per operation, called before anything is written.
//!
//! Each takes the operation's arguments. A backend that calls it may index without further thought: after `Ok` all
//! dimensions agree, all ids are in range and every buffer is the device's own.

use crate::act::{Act, Precision};
use crate::error::{Error, Result, expect};
use crate::kv::{KV_BLOCK, KvCache, KvSpec, Placement};
use crate::ops::{Activation, Attention, Groups, Rope, Routing, Sampling, SelectionBias};
use crate::tensor::{Buffer, DeviceId, View, ViewMut};
use crate::weight::{Role, TensorView, Weight};

/// Experts that a router can choose from.
pub(crate) const MAX_EXPERTS: usize = 1024;

/// The padding id: a pair without an expert, a token without a sequence.
pub(crate) const PADDING: u32 = u32::MAX;

fn home(op: &'static str, expected: DeviceId, found: DeviceId) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::ForeignBuffer { op, expected, found }) }
}

fn homes(op: &'static str, expected: DeviceId, found: &[DeviceId]) -> Result<()> {
    found.iter().try_for_each(|&found| home(op, expected, found))
}

fn range<T>(op: &'static str, what: &'static str, found: impl std::fmt::Display, rule: &'static str) -> Result<T> {
    Err(Error::Range { op, what, found: found.to_string(), rule })
}

fn require(
    holds: bool,
    op: &'static str,
    what: &'static str,
    found: impl std::fmt::Display,
    rule: &'static str,
) -> Result<()> {
    if holds { Ok(()) } else { range(op, what, found, rule) }
}

fn id(op: &'static str, what: &'static str, id: u32, index: usize, limit: usize) -> Result<()> {
    if (id as usize) < limit { Ok(()) } else { Err(Error::Id { op, what, id, index, limit }) }
}

/// A buffer that must hold at least this much.
fn at_least(op: &'static str, what: &'static str, found: usize, needed: usize) -> Result<()> {
    if found >= needed { Ok(()) } else { Err(Error::Shape { op, what, found, expected: needed }) }
}

/// Elements of a `rows` × `cols` array, or an [`Error::OutOfMemory`] if no machine can hold it.
pub(crate) fn elements(what: &'static str, dims: &[usize]) -> Result<usize> {
    // A product of which one factor is 0 is 0, whatever the others.
    if dims.contains(&0) {
        return Ok(0);
    }
    let product = dims.iter().try_fold(1_usize, |n, &d| n.checked_mul(d));
    product.filter(|&n| n <= isize::MAX as usize).ok_or(Error::OutOfMemory { what, bytes: usize::MAX })
}

fn role(op: &'static str, weight: &Weight, role: Role, rule: &'static str) -> Result<()> {
    require(weight.role() == role, op, "role of the weight", format_args!("{:?}", weight.role()), rule)
}

const MATRIX: &str = "prepare it as Role::Matrix";
const GATE_UP: &str = "prepare it as Role::GateUp";
const DENSE: &str = "a weight with experts needs the moe_ operations";

fn dense(op: &'static str, weight: &Weight) -> Result<()> {
    require(weight.experts() == 1, op, "experts", weight.experts(), DENSE)
}

// ── memory ──

/// [`crate::ops::Backend::upload_f32`] and `upload_u32`.
pub(crate) fn upload<T: Copy>(device: DeviceId, values: &[T], to: &Buffer<T>) -> Result<()> {
    home("upload", device, to.device())?;
    at_least("upload", "length of the buffer", to.len(), values.len())
}

/// [`crate::ops::Backend::download_f32`] and `download_u32`.
pub(crate) fn download<T: Copy>(device: DeviceId, from: &View<T>, to: &[T]) -> Result<()> {
    home("download", device, from.device())?;
    expect("download", "length of the target", to.len(), elements("download", &[from.rows(), from.cols()])?)
}

/// [`crate::ops::Backend::alloc_kv`].
pub(crate) fn alloc_kv(spec: &KvSpec) -> Result<()> {
    let rule = "must not be 0";
    require(spec.heads > 0, "alloc_kv", "heads", spec.heads, rule)?;
    require(spec.key_width > 0, "alloc_kv", "key width", spec.key_width, rule)?;
    require(spec.value_width > 0, "alloc_kv", "value width", spec.value_width, rule)
}

/// [`crate::ops::Backend::alloc_groups`].
pub(crate) fn alloc_groups(experts: usize) -> Result<()> {
    require((1..=MAX_EXPERTS).contains(&experts), "alloc_groups", "experts", experts, "1 to 1024 are supported")
}

/// [`crate::ops::Backend::prepare`]. Returns (experts, rows, cols) of the weight.
pub(crate) fn prepare(tensors: &[TensorView], role: Role) -> Result<(usize, usize, usize)> {
    let op = "prepare";
    tensors.iter().try_for_each(TensorView::check)?;
    let Some(first) = tensors.first() else { return range(op, "tensors", 0, "at least one is needed") };
    for other in tensors {
        expect(op, "columns of a joined tensor", other.cols, first.cols)?;
        expect(op, "experts of a joined tensor", other.experts, first.experts)?;
    }
    match role {
        Role::Matrix => {
            let rows = tensors.iter().try_fold(0_usize, |n, t| n.checked_add(t.rows));
            let rows = rows.ok_or(Error::OutOfMemory { what: "joined weights", bytes: usize::MAX })?;
            Ok((first.experts, rows, first.cols))
        }
        Role::GateUp => {
            expect(op, "tensors of a gate and up pair", tensors.len(), 2)?;
            expect(op, "rows of the up tensor", tensors[1].rows, first.rows)?;
            Ok((first.experts, first.rows, first.cols))
        }
        Role::Table => {
            expect(op, "tensors of a table", tensors.len(), 1)?;
            expect(op, "experts of a table", first.experts, 1)?;
            Ok((1, first.rows, first.cols))
        }
    }
}

// ── matrices ──

/// A column of `rows` numbers on the device.
fn column<T: Copy>(op: &'static str, what: &'static str, device: DeviceId, view: &View<T>, rows: usize) -> Result<()> {
    home(op, device, view.device())?;
    expect(op, what, view.rows(), rows)?;
    // A view without rows has no columns to speak of.
    if rows == 0 { Ok(()) } else { expect(op, "columns of a list", view.cols(), 1) }
}

fn ids(op: &'static str, what: &'static str, view: &View<u32>, limit: usize, padding: bool) -> Result<()> {
    let Some((values, shape)) = view.as_host() else { return Ok(()) };
    for row in 0..view.rows() {
        for (col, &value) in values[shape.row(row)].iter().enumerate() {
            if !(padding && value == PADDING) {
                id(op, what, value, row * view.cols() + col, limit)?;
            }
        }
    }
    Ok(())
}

fn columns_of<T: Copy>(op: &'static str, what: &'static str, view: &ViewMut<T>, cols: usize) -> Result<()> {
    if view.rows() == 0 { Ok(()) } else { expect(op, what, view.cols(), cols) }
}

/// [`crate::ops::Backend::embed`].
pub(crate) fn embed(device: DeviceId, table: &Weight, rows: &View<u32>, out: &ViewMut<f32>) -> Result<()> {
    let op = "embed";
    homes(op, device, &[table.device(), out.device()])?;
    role(op, table, Role::Table, "prepare it as Role::Table")?;
    column(op, "number of row ids", device, rows, out.rows())?;
    columns_of(op, "columns of the output", out, table.cols())?;
    ids(op, "row", rows, table.rows(), false)
}

/// [`crate::ops::Backend::prepare_activations`].
pub(crate) fn prepare_activations(device: DeviceId, x: &View<f32>, act: &Act) -> Result<()> {
    let op = "prepare_activations";
    homes(op, device, &[x.device(), act.device()])?;
    let needed = elements("activations", &[x.rows(), x.cols()])?;
    at_least(op, "room in the activations", act.exact.len(), needed)?;
    match act.precision {
        Precision::Exact => Ok(()),
        Precision::Fast => {
            let needed = elements("activations", &[x.rows(), x.cols().div_ceil(32)])?;
            at_least(op, "blocks in the activations", act.int8.len(), needed)
        }
    }
}

fn vector(op: &'static str, what: &'static str, device: DeviceId, v: &Buffer<f32>, len: usize) -> Result<()> {
    home(op, device, v.device())?;
    expect(op, what, v.len(), len)
}

/// [`crate::ops::Backend::matmul`].
pub(crate) fn matmul(
    device: DeviceId,
    w: &Weight,
    x: &Act,
    bias: Option<&Buffer<f32>>,
    y: &ViewMut<f32>,
) -> Result<()> {
    let op = "matmul";
    homes(op, device, &[w.device(), x.device(), y.device()])?;
    role(op, w, Role::Matrix, MATRIX)?;
    dense(op, w)?;
    expect(op, "rows of the output", y.rows(), x.rows())?;
    expect(op, "columns of the activations", x.cols(), w.cols())?;
    columns_of(op, "columns of the output", y, w.rows())?;
    bias.map_or(Ok(()), |b| vector(op, "length of the bias", device, b, w.rows()))
}

/// [`crate::ops::Backend::matmul_rows`].
pub(crate) fn matmul_rows(device: DeviceId, w: &Weight, x: &Act, rows: &View<u32>, y: &ViewMut<f32>) -> Result<()> {
    let op = "matmul_rows";
    homes(op, device, &[w.device(), x.device(), y.device()])?;
    role(op, w, Role::Matrix, MATRIX)?;
    dense(op, w)?;
    column(op, "number of row ids", device, rows, y.rows())?;
    expect(op, "columns of the activations", x.cols(), w.cols())?;
    columns_of(op, "columns of the output", y, w.rows())?;
    ids(op, "row", rows, x.rows(), false)
}

/// [`crate::ops::Backend::gate_up`].
pub(crate) fn gate_up(
    device: DeviceId,
    w: &Weight,
    x: &Act,
    bias: Option<[&Buffer<f32>; 2]>,
    h: &ViewMut<f32>,
) -> Result<()> {
    let op = "gate_up";
    homes(op, device, &[w.device(), x.device(), h.device()])?;
    role(op, w, Role::GateUp, GATE_UP)?;
    dense(op, w)?;
    expect(op, "rows of the output", h.rows(), x.rows())?;
    expect(op, "columns of the activations", x.cols(), w.cols())?;
    columns_of(op, "columns of the output", h, w.rows())?;
    bias.into_iter().flatten().try_for_each(|b| vector(op, "length of a bias", device, b, w.rows()))
}

/// The parameters of an activation, for [`gate_up`] and [`moe_gate_up`].
pub(crate) fn activation(op: &'static str, activation: Activation) -> Result<()> {
    let Activation::ClampedSwiGlu { alpha, limit } = activation else { return Ok(()) };
    require(alpha.is_finite(), op, "alpha", alpha, "must be finite")?;
    require(limit > 0.0, op, "limit", limit, "must be above 0")
}

// ── experts ──

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
    role(op, w, Role::Matrix, MATRIX)?;
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
    role(op, w, Role::GateUp, GATE_UP)?;
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

// ── element-wise and norms ──

fn same(op: &'static str, device: DeviceId, x: &View<f32>, y: &ViewMut<f32>) -> Result<()> {
    homes(op, device, &[x.device(), y.device()])?;
    expect(op, "rows of the output", y.rows(), x.rows())?;
    columns_of(op, "columns of the output", y, x.cols())
}

fn epsilon(op: &'static str, eps: f32) -> Result<()> {
    require(eps.is_finite() && eps >= 0.0, op, "epsilon", eps, "must be finite and not negative")
}

/// [`crate::ops::Backend::rms_norm`].
pub(crate) fn rms_norm(
    device: DeviceId,
    x: &View<f32>,
    weight: &Buffer<f32>,
    eps: f32,
    out: &ViewMut<f32>,
) -> Result<()> {
    let op = "rms_norm";
    same(op, device, x, out)?;
    epsilon(op, eps)?;
    vector(op, "length of the weight", device, weight, x.cols())
}

/// [`crate::ops::Backend::qk_norm`].
pub(crate) fn qk_norm(device: DeviceId, x: &ViewMut<f32>, weight: &Buffer<f32>, eps: f32) -> Result<()> {
    let op = "qk_norm";
    homes(op, device, &[x.device(), weight.device()])?;
    epsilon(op, eps)?;
    let divides = !weight.is_empty() && x.cols().is_multiple_of(weight.len());
    require(divides, op, "length of the weight", weight.len(), "must divide the columns")
}

/// [`crate::ops::Backend::rope`].
pub(crate) fn rope(
    device: DeviceId,
    x: &ViewMut<f32>,
    head_width: usize,
    positions: &View<u32>,
    rope: &Rope,
) -> Result<()> {
    let op = "rope";
    homes(op, device, &[x.device(), rope.frequencies.device()])?;
    let divides = head_width > 0 && x.cols().is_multiple_of(head_width);
    require(divides, op, "head width", head_width, "must divide the columns")?;
    let pairs = rope.frequencies.len();
    require(pairs <= head_width / 2, op, "frequencies", pairs, "at most half the head width")?;
    column(op, "number of positions", device, positions, x.rows())
}

/// [`crate::ops::Backend::add`].
pub(crate) fn add(device: DeviceId, x: &View<f32>, y: &ViewMut<f32>) -> Result<()> {
    same("add", device, x, y)
}

/// [`crate::ops::Backend::add_gated`].
pub(crate) fn add_gated(device: DeviceId, x: &View<f32>, gate: &View<f32>, y: &ViewMut<f32>) -> Result<()> {
    same("add_gated", device, x, y)?;
    column("add_gated", "number of gates", device, gate, x.rows())
}

/// [`crate::ops::Backend::add_bias`].
pub(crate) fn add_bias(device: DeviceId, bias: &Buffer<f32>, y: &ViewMut<f32>) -> Result<()> {
    home("add_bias", device, y.device())?;
    vector("add_bias", "length of the bias", device, bias, y.cols())
}

/// [`crate::ops::Backend::argmax`].
pub(crate) fn argmax(device: DeviceId, x: &View<f32>, out: &ViewMut<u32>) -> Result<()> {
    let op = "argmax";
    home(op, device, x.device())?;
    column(op, "rows of the output", device, &out.as_view(), x.rows())?;
    let fits = x.rows() == 0 || (1..=PADDING as usize).contains(&x.cols());
    require(fits, op, "columns", x.cols(), "from 1 to 2^32 - 1")
}

/// [`crate::ops::Backend::sample`].
pub(crate) fn sample(
    device: DeviceId,
    logits: &ViewMut<f32>,
    parameters: &[Sampling],
    out: &ViewMut<u32>,
) -> Result<()> {
    let op = "sample";
    home(op, device, logits.device())?;
    expect(op, "number of parameter sets", parameters.len(), logits.rows())?;
    column(op, "rows of the output", device, &out.as_view(), logits.rows())?;
    if logits.rows() == 0 {
        return Ok(());
    }
    let vocabulary = logits.cols();
    require((1..=PADDING as usize).contains(&vocabulary), op, "vocabulary", vocabulary, "from 1 to 2^32 - 1")?;
    parameters.iter().try_for_each(|p| sampling(op, p, vocabulary))
}

fn sampling(op: &'static str, p: &Sampling, vocabulary: usize) -> Result<()> {
    let finite = "must be finite";
    let share = "must be from 0 to 1";
    let t = p.temperature;
    require(t.is_finite() && t >= 0.0, op, "temperature", t, "must be finite and not negative")?;
    require((0.0..=1.0).contains(&p.top_p), op, "top-p", p.top_p, share)?;
    require((0.0..=1.0).contains(&p.min_p), op, "min-p", p.min_p, share)?;
    let repeat = p.repeat_penalty;
    require(repeat.is_finite() && repeat > 0.0, op, "repeat penalty", repeat, "must be finite and above 0")?;
    require(p.presence_penalty.is_finite(), op, "presence penalty", p.presence_penalty, finite)?;
    require(p.frequency_penalty.is_finite(), op, "frequency penalty", p.frequency_penalty, finite)?;
    for (index, &(token, bias)) in p.bias.iter().enumerate() {
        id(op, "biased token", token, index, vocabulary)?;
        require(!bias.is_nan(), op, "bias", bias, "must be a number")?;
    }
    for (index, &(token, _)) in p.counts.iter().enumerate() {
        id(op, "counted token", token, index, vocabulary)?;
    }
    let Some(mask) = p.mask else { return Ok(()) };
    expect(op, "words of the mask", mask.len(), vocabulary.div_ceil(32))?;
    let tail = vocabulary % 32;
    let allows = mask.iter().enumerate().any(|(i, &word)| {
        let last = i + 1 == mask.len() && tail != 0;
        (if last { word & ((1 << tail) - 1) } else { word }) != 0
    });
    require(allows, op, "allowed tokens", 0, "the mask must allow at least one token")
}

// ── attention ──

/// The parts of a placement that live in host memory and cover T tokens.
struct Place<'a> {
    op: &'static str,
    slots: &'a [u32],
    positions: &'a [u32],
    table: &'a [u32],
    table_cols: usize,
}

impl<'a> Place<'a> {
    fn new(op: &'static str, device: DeviceId, place: &'a Placement, tokens: usize) -> Result<Option<Self>> {
        homes(op, device, &[place.slots.device(), place.positions.device(), place.table.device()])?;
        at_least(op, "number of slots", place.slots.len(), tokens)?;
        at_least(op, "number of positions", place.positions.len(), tokens)?;
        let entries = elements("block table", &[place.table_rows, place.table_cols])?;
        at_least(op, "entries of the block table", place.table.len(), entries)?;
        let host = (place.slots.as_host(), place.positions.as_host(), place.table.as_host());
        let (Some(slots), Some(positions), Some(table)) = host else { return Ok(None) };
        let (slots, positions) = (&slots[..tokens], &positions[..tokens]);
        for (index, (&slot, &position)) in slots.iter().zip(positions).enumerate() {
            if slot != PADDING {
                id(op, "slot", slot, index, place.table_rows)?;
                id(op, "position", position, index, place.table_cols.saturating_mul(KV_BLOCK))?;
            }
        }
        Ok(Some(Self { op, slots, positions, table, table_cols: place.table_cols }))
    }

    /// Checks the table's entries for blocks `from..=to` of a slot.
    fn blocks(&self, slot: u32, from: usize, to: usize, limit: usize) -> Result<()> {
        let row = slot as usize * self.table_cols;
        (row + from..=row + to).try_for_each(|i| id(self.op, "block", self.table[i], i, limit))
    }
}

/// [`crate::ops::Backend::kv_write`].
pub(crate) fn kv_write(
    device: DeviceId,
    cache: &KvCache,
    k: &View<f32>,
    v: &View<f32>,
    place: &Placement,
) -> Result<()> {
    let op = "kv_write";
    homes(op, device, &[cache.device(), k.device(), v.device()])?;
    expect(op, "rows of the values", v.rows(), k.rows())?;
    if k.rows() == 0 {
        return Ok(());
    }
    let spec = cache.spec();
    expect(op, "columns of the keys", k.cols(), spec.heads * spec.key_width)?;
    expect(op, "columns of the values", v.cols(), spec.heads * spec.value_width)?;
    let Some(place) = Place::new(op, device, place, k.rows())? else { return Ok(()) };
    for (&slot, &position) in place.slots.iter().zip(place.positions) {
        if slot != PADDING {
            let block = position as usize / KV_BLOCK;
            place.blocks(slot, block, block, cache.blocks())?;
        }
    }
    Ok(())
}

/// [`crate::ops::Backend::kv_copy`].
pub(crate) fn kv_copy(device: DeviceId, cache: &KvCache, blocks: &[(u32, u32)]) -> Result<()> {
    let op = "kv_copy";
    home(op, device, cache.device())?;
    for (index, &(from, to)) in blocks.iter().enumerate() {
        id(op, "source block", from, index, cache.blocks())?;
        id(op, "target block", to, index, cache.blocks())?;
    }
    Ok(())
}

/// [`crate::ops::Backend::attention`].
pub(crate) fn attention(
    device: DeviceId,
    q: &View<f32>,
    cache: &KvCache,
    place: &Placement,
    parameters: &Attention,
    out: &ViewMut<f32>,
) -> Result<()> {
    let op = "attention";
    homes(op, device, &[q.device(), cache.device(), out.device()])?;
    let (spec, heads) = (cache.spec(), parameters.heads);
    expect(op, "rows of the output", out.rows(), q.rows())?;
    let divides = heads > 0 && heads.is_multiple_of(spec.heads);
    require(divides, op, "query heads", heads, "must be a multiple of the cache's heads")?;
    require(parameters.scale.is_finite(), op, "scale", parameters.scale, "must be finite")?;
    require(parameters.window != Some(0), op, "window", 0, "must be at least 1")?;
    if let Some(softcap) = parameters.softcap {
        require(softcap.is_finite() && softcap > 0.0, op, "softcap", softcap, "must be finite and above 0")?;
    }
    if let Some(sinks) = parameters.sinks {
        vector(op, "number of sinks", device, sinks, heads)?;
    }
    if q.rows() == 0 {
        return Ok(());
    }
    expect(op, "columns of the queries", q.cols(), elements("queries", &[heads, spec.key_width])?)?;
    expect(op, "columns of the output", out.cols(), elements("outputs", &[heads, spec.value_width])?)?;
    let Some(place) = Place::new(op, device, place, q.rows())? else { return Ok(()) };
    // Neighbouring tokens see nearly the same blocks: each run of them is looked at once.
    let mut seen: Option<(u32, usize, usize)> = None;
    for (&slot, &position) in place.slots.iter().zip(place.positions) {
        if slot == PADDING {
            continue;
        }
        let (first, last) = visible(position, parameters.window);
        let (first, last) = (first / KV_BLOCK, last / KV_BLOCK);
        match seen {
            Some((s, from, to)) if s == slot && from <= first && first <= to => {
                if last > to {
                    place.blocks(slot, to + 1, last, cache.blocks())?;
                    seen = Some((slot, from, last));
                }
            }
            _ => {
                place.blocks(slot, first, last, cache.blocks())?;
                seen = Some((slot, first, last));
            }
        }
    }
    Ok(())
}

/// First and last position that a token at `position` sees.
pub(crate) fn visible(position: u32, window: Option<usize>) -> (usize, usize) {
    let last = position as usize;
    (window.map_or(0, |w| (last + 1).saturating_sub(w)), last)
}

//! What the host computes of a layer: the rows of the chosen experts.

use crate::mailbox::{HIT, HostEnd, Request};
use crate::slots::{HostExpert, LayerSlots};
use gristmill_kernels::Backend;
use gristmill_kernels::act::{ACT_BLOCK, Act, Int8Words, Precision};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::groups::Groups;
use gristmill_kernels::offload::HostMatrices;
use gristmill_kernels::ops::{
    Activation, Experts, GroupByExpert, MoeGateUp, MoeGateUpAct, MoeMatmul, Operation, PrepareActivations,
};
use gristmill_kernels::tensor::{Buffer, zeroed};
use std::mem::take;
use std::sync::{Arc, Weak};

/// The experts of a layer in host memory.
#[derive(Debug)]
pub(super) struct HostLayer {
    /// The weights, which belong to the model.
    pub(super) gate_up: Weak<HostMatrices>,
    pub(super) down: Weak<HostMatrices>,
    pub(super) activation: Activation,
    /// Biases in host memory, as in [`gristmill_kernels::ops::ExpertWeights`].
    pub(super) gate_up_bias: Option<[Buffer<f32>; 2]>,
    pub(super) down_bias: Option<Buffer<f32>>,
    pub(super) top_k: usize,
    pub(super) precision: Precision,
    /// Slots for some of the experts.
    pub(super) slots: Option<LayerSlots>,
}

impl HostLayer {
    /// Whether it has these weights, with the same routing and precision.
    pub(super) fn is(&self, weights: [&Arc<HostMatrices>; 2], top_k: usize, precision: Precision) -> bool {
        self.has(weights) && (self.top_k, self.precision) == (top_k, precision)
    }

    /// Whether it has these weights.
    pub(super) fn has(&self, weights: [&Arc<HostMatrices>; 2]) -> bool {
        let same = |own: &Weak<HostMatrices>, other: &Arc<HostMatrices>| Weak::as_ptr(own) == Arc::as_ptr(other);
        same(&self.gate_up, weights[0]) && same(&self.down, weights[1])
    }

    /// Whether the model that owns the weights is gone.
    pub(super) fn is_dropped(&self) -> bool {
        self.gate_up.strong_count() == 0
    }

    /// The weights of gate and up, and of down. `None` if the model is gone.
    pub(super) fn matrices(&self) -> Option<[Arc<HostMatrices>; 2]> {
        Some([self.gate_up.upgrade()?, self.down.upgrade()?])
    }

    /// What its experts consist of.
    pub(super) fn expert<'a>(&'a self, [gate_up, down]: &'a [Arc<HostMatrices>; 2]) -> HostExpert<'a> {
        let bias = |bias: Option<&'a Buffer<f32>>, rows| bias.and_then(Buffer::as_host).map(|values| (values, rows));
        let [gate, up] = self.gate_up_bias.as_ref().map_or([None; 2], |biases| biases.each_ref().map(Some));
        let (inner, hidden) = (gate_up.weight.rows(), down.weight.rows());
        let biases = [bias(gate, inner), bias(up, inner), bias(self.down_bias.as_ref(), hidden)];
        HostExpert { gate_up, down, biases }
    }
}

/// The numbers that determine the sizes of [`Scratch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    experts: usize,
    hidden: usize,
    inner: usize,
    precision: Precision,
    /// The device sends int8.
    int8: bool,
}

/// Rows of activations, and pairs of such a row and an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    tokens: usize,
    rows: usize,
    pairs: usize,
}

/// Host memory for one shape of layers and a size. Layers of one shape share it.
#[derive(Debug)]
pub(super) struct Scratch {
    shape: Shape,
    size: Size,
    /// Ids as the device posted them, and the pairs to compute.
    posted: Vec<u32>,
    missed: Vec<usize>,
    ids: Buffer<u32>,
    /// Activations as the device has them, of all tokens and of the rows to compute: f32, or int8.
    x: [Buffer<f32>; 2],
    int8: [Vec<Int8Words>; 2],
    act: Act,
    groups: Groups,
    h: Buffer<f32>,
    h_act: Act,
    out: Buffer<f32>,
}

impl Scratch {
    fn new(host: &Backend, shape: Shape, size: Size) -> Result<Self> {
        let Shape { experts, hidden, inner, precision, int8 } = shape;
        let Size { tokens, rows, pairs } = size;
        let [floats, blocks] = if int8 { [0, hidden.div_ceil(ACT_BLOCK)] } else { [hidden, 0] };
        let what = "the experts on the CPU";
        Ok(Self {
            shape,
            size,
            posted: Vec::new(),
            missed: Vec::new(),
            ids: host.alloc(pairs, what)?,
            x: [host.alloc(tokens * floats, what)?, host.alloc(rows * floats, what)?],
            int8: [zeroed(tokens * blocks, what)?, zeroed(rows * blocks, what)?],
            act: host.alloc_act(precision, rows, hidden)?,
            groups: host.alloc_groups(experts, pairs)?,
            h: host.alloc(pairs * inner, what)?,
            h_act: host.alloc_act(precision, pairs, inner)?,
            out: host.alloc(pairs * hidden, what)?,
        })
    }

    fn holds(&self, shape: Shape, size: Size) -> bool {
        self.shape == shape
            && self.size.tokens >= size.tokens
            && self.size.rows >= size.rows
            && self.size.pairs >= size.pairs
    }
}

/// Answers a request: computes the rows of a layer's chosen experts, except of those in slots. Returns the ids as the device posted
/// them, of tokens · top-k experts.
pub(super) fn answer<'s>(
    host: &Backend,
    scratch: &'s mut Option<Scratch>,
    layer: &HostLayer,
    request: Request,
    end: &mut HostEnd,
) -> Result<&'s [u32]> {
    let gone = Error::ForeignLayout { op: Experts::NAME, what: "a weight that was freed" };
    let matrices = layer.matrices().ok_or(gone)?;
    let (gate_up, down) = (&matrices[0].weight, &matrices[1].weight);
    let HostLayer { activation, gate_up_bias, down_bias, top_k, precision, .. } = layer;
    let (top_k, hidden, inner, tokens) = (*top_k, gate_up.cols(), gate_up.rows(), request.tokens);
    let int8 = host.offload().reads_int8(*precision, gate_up);
    let shape = Shape { experts: gate_up.experts(), hidden, inner, precision: *precision, int8 };
    let on_host = || Error::ForeignLayout { op: Experts::NAME, what: "the memory of the CPU's backend" };
    // The lists of the last request, which may be of another shape.
    let (mut posted, mut missed) =
        scratch.as_mut().map(|s| (take(&mut s.posted), take(&mut s.missed))).unwrap_or_default();
    posted.resize(tokens * top_k, 0);
    end.read_ids(&mut posted)?;
    let is_missed = |id: u32| id & HIT == 0;
    missed.clear();
    missed.extend((0..posted.len()).filter(|&pair| is_missed(posted[pair])));
    // With slots, each pair that was missed has a row of its own, so no row of others is computed or cleared. Without, the device
    // copies the rows of padding too.
    let has_slots = layer.slots.is_some();
    let (rows, pairs) = if has_slots { (missed.len(), missed.len()) } else { (tokens, tokens * top_k) };
    if !scratch.as_ref().is_some_and(|s| s.holds(shape, Size { tokens, rows, pairs })) {
        *scratch = None;
    }
    let s = match scratch {
        Some(s) => s,
        None => {
            let [rows, pairs] = [rows, pairs].map(usize::next_power_of_two);
            scratch.insert(Scratch::new(host, shape, Size { tokens, rows, pairs })?)
        }
    };
    (s.posted, s.missed) = (posted, missed);
    if pairs == 0 {
        end.answer(request.number)?;
        return Ok(&s.posted);
    }
    let ids = &mut s.ids.as_host_mut().ok_or_else(on_host)?[..pairs];
    match has_slots {
        true => ids.iter_mut().zip(&s.missed).for_each(|(to, &pair)| *to = s.posted[pair]),
        false => ids.copy_from_slice(&s.posted),
    }
    let width = if int8 { hidden.div_ceil(ACT_BLOCK) } else { hidden };
    if int8 {
        let [all, own] = &mut s.int8;
        let all = &mut all[..tokens * width];
        end.read_x(bytemuck::cast_slice_mut(all))?;
        let x = if has_slots { gather(all, own, width, &s.missed, top_k) } else { all };
        host.offload().import_int8(x, rows, hidden, &mut s.act)?;
    } else {
        let [all, own] = &mut s.x;
        let x = &mut all.as_host_mut().ok_or_else(on_host)?[..tokens * width];
        end.read_x(bytemuck::cast_slice_mut(x))?;
        let x = match has_slots {
            true => {
                gather(x, own.as_host_mut().ok_or_else(on_host)?, width, &s.missed, top_k);
                own
            }
            false => all,
        };
        host.run(PrepareActivations { x: x.view(rows, hidden)?, act: &mut s.act })?;
    }
    let per_row = pairs / rows;
    host.run(GroupByExpert { ids: s.ids.view(rows, per_row)?, groups: &mut s.groups })?;
    host.offload().request_experts([gate_up, down], &s.groups)?;
    let gate_up = MoeGateUp {
        weight: gate_up,
        x: &s.act,
        groups: &s.groups,
        top_k: per_row,
        bias: gate_up_bias.as_ref().map(|biases| biases.each_ref()),
        activation: *activation,
        h: s.h.view_mut(pairs, inner)?,
    };
    host.run(MoeGateUpAct { gate_up, act: &mut s.h_act })?;
    host.run(MoeMatmul {
        weight: down,
        x: &s.h_act,
        groups: &s.groups,
        top_k: per_row,
        bias: down_bias.as_ref(),
        out: s.out.view_mut(pairs, hidden)?,
    })?;
    let out = &s.out.as_host().ok_or_else(on_host)?[..pairs * hidden];
    for (at, row) in out.chunks_exact(hidden).enumerate() {
        end.write_row(if has_slots { s.missed[at] } else { at }, row)?;
    }
    end.answer(request.number)?;
    Ok(&s.posted)
}

/// Copies the rows of pairs, of which `top_k` share one, one after another. Returns them.
fn gather<'a, T: Copy>(from: &[T], to: &'a mut [T], width: usize, pairs: &[usize], top_k: usize) -> &'a mut [T] {
    let to = &mut to[..pairs.len() * width];
    for (row, &pair) in to.chunks_exact_mut(width).zip(pairs) {
        row.copy_from_slice(&from[pair / top_k * width..][..width]);
    }
    to
}

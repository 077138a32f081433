//! What the host computes of a layer: the rows of the chosen experts.

use super::inserter::HIT;
use super::mailbox::{HostEnd, Request};
use super::slots::{HostExpert, LayerSlots};
use gristmill_kernels::Backend;
use gristmill_kernels::act::{ACT_BLOCK, Act, Int8Words, Precision};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::groups::Groups;
use gristmill_kernels::ops::{
    Activation, Experts, GroupByExpert, MoeGateUp, MoeGateUpAct, MoeMatmul, Operation, PADDING, PrepareActivations,
};
use gristmill_kernels::tensor::{Buffer, zeroed};
use gristmill_kernels::weight::HostMatrices;
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
    top_k: usize,
    hidden: usize,
    inner: usize,
    precision: Precision,
    /// The device sends int8.
    int8: bool,
}

/// Host memory for one shape of layers and a number of tokens. Layers of one shape share it.
#[derive(Debug)]
pub(super) struct Scratch {
    shape: Shape,
    tokens: usize,
    /// Ids as the device posted them, and those of the experts to compute.
    posted: Vec<u32>,
    ids: Buffer<u32>,
    /// Activations as the device has them: f32, or int8.
    x: Buffer<f32>,
    int8: Vec<Int8Words>,
    act: Act,
    groups: Groups,
    h: Buffer<f32>,
    h_act: Act,
    out: Buffer<f32>,
}

impl Scratch {
    fn new(host: &Backend, shape: Shape, tokens: usize) -> Result<Self> {
        let Shape { experts, top_k, hidden, inner, precision, int8 } = shape;
        let [floats, blocks] = if int8 { [0, hidden.div_ceil(ACT_BLOCK)] } else { [hidden, 0] };
        let (pairs, what) = (tokens * top_k, "the experts on the CPU");
        Ok(Self {
            shape,
            tokens,
            posted: Vec::new(),
            ids: host.alloc(pairs, what)?,
            x: host.alloc(tokens * floats, what)?,
            int8: zeroed(tokens * blocks, what)?,
            act: host.alloc_act(precision, tokens, hidden)?,
            groups: host.alloc_groups(experts, pairs)?,
            h: host.alloc(pairs * inner, what)?,
            h_act: host.alloc_act(precision, pairs, inner)?,
            out: host.alloc(pairs * hidden, what)?,
        })
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
    let int8 = host.reads_int8(*precision, gate_up);
    let shape = Shape { experts: gate_up.experts(), top_k, hidden, inner, precision: *precision, int8 };
    if !scratch.as_ref().is_some_and(|scratch| scratch.shape == shape && scratch.tokens >= tokens) {
        *scratch = None;
    }
    let s = match scratch {
        Some(s) => s,
        None => scratch.insert(Scratch::new(host, shape, tokens)?),
    };
    let pairs = tokens * top_k;
    let on_host = || Error::ForeignLayout { op: Experts::NAME, what: "the memory of the CPU's backend" };
    s.posted.resize(pairs, 0);
    end.read_ids(&mut s.posted)?;
    let is_missed = |id: u32| id & HIT == 0;
    let has_slots = layer.slots.is_some();
    if has_slots && !s.posted.iter().any(|&id| is_missed(id)) {
        end.answer(request.number)?;
        return Ok(&s.posted);
    }
    let ids = &mut s.ids.as_host_mut().ok_or_else(on_host)?[..pairs];
    ids.iter_mut().zip(&s.posted).for_each(|(to, id)| *to = if is_missed(*id) { *id } else { PADDING });
    if int8 {
        let blocks = &mut s.int8[..tokens * hidden.div_ceil(ACT_BLOCK)];
        end.read_x(bytemuck::cast_slice_mut(blocks))?;
        host.import_int8(blocks, tokens, hidden, &mut s.act)?;
    } else {
        let x = &mut s.x.as_host_mut().ok_or_else(on_host)?[..tokens * hidden];
        end.read_x(bytemuck::cast_slice_mut(x))?;
        host.run(PrepareActivations { x: s.x.view(tokens, hidden)?, act: &mut s.act })?;
    }
    host.run(GroupByExpert { ids: s.ids.view(tokens, top_k)?, groups: &mut s.groups })?;
    let gate_up = MoeGateUp {
        weight: gate_up,
        x: &s.act,
        groups: &s.groups,
        top_k,
        bias: gate_up_bias.as_ref().map(|biases| biases.each_ref()),
        activation: *activation,
        h: s.h.view_mut(pairs, inner)?,
    };
    host.run(MoeGateUpAct { gate_up, act: &mut s.h_act })?;
    host.run(MoeMatmul {
        weight: down,
        x: &s.h_act,
        groups: &s.groups,
        top_k,
        bias: down_bias.as_ref(),
        out: s.out.view_mut(pairs, hidden)?,
    })?;
    let rows = &s.out.as_host().ok_or_else(on_host)?[..pairs * hidden];
    for (pair, (row, &id)) in rows.chunks_exact(hidden).zip(&s.posted).enumerate() {
        // Without slots, the device copies the rows of padding too.
        if !has_slots || is_missed(id) {
            end.write_row(pair, row)?;
        }
    }
    end.answer(request.number)?;
    Ok(&s.posted)
}

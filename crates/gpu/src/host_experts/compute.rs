//! What the host computes of a layer: the rows of the chosen experts.

use gristmill_kernels::Backend;
use gristmill_kernels::act::{ACT_BLOCK, Act, Int8Words, Precision};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::groups::Groups;
use gristmill_kernels::ops::{
    Activation, Experts, GroupByExpert, MoeGateUp, MoeGateUpAct, MoeMatmul, Operation, PrepareActivations,
};
use gristmill_kernels::tensor::{Buffer, zeroed};
use gristmill_kernels::weight::Weight;
use std::sync::{Arc, Weak};

/// The experts of a layer in host memory.
#[derive(Debug)]
pub(super) struct HostLayer {
    /// The weights, which belong to the model.
    pub(super) gate_up: Weak<Weight>,
    pub(super) down: Weak<Weight>,
    pub(super) activation: Activation,
    /// Biases in host memory, as in [`gristmill_kernels::ops::ExpertWeights`].
    pub(super) gate_up_bias: Option<[Buffer<f32>; 2]>,
    pub(super) down_bias: Option<Buffer<f32>>,
    pub(super) top_k: usize,
    pub(super) precision: Precision,
}

impl HostLayer {
    /// Whether it has these weights, with the same routing and precision.
    pub(super) fn is(&self, weights: [&Arc<Weight>; 2], top_k: usize, precision: Precision) -> bool {
        let same = |own: &Weak<Weight>, other: &Arc<Weight>| Weak::as_ptr(own) == Arc::as_ptr(other);
        same(&self.gate_up, weights[0])
            && same(&self.down, weights[1])
            && (self.top_k, self.precision) == (top_k, precision)
    }

    /// Whether the model that owns the weights is gone.
    pub(super) fn is_dropped(&self) -> bool {
        self.gate_up.strong_count() == 0
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

/// The rows of a layer's chosen experts. `read` fills the ids and activations of the tokens; `write` gets the rows, tokens ·
/// top-k × hidden.
pub(super) fn rows<T>(
    host: &Backend,
    scratch: &mut Option<Scratch>,
    layer: &HostLayer,
    tokens: usize,
    io: &mut T,
    read: impl FnOnce(&mut T, &mut [u32], &mut [u8]) -> Result<()>,
    write: impl FnOnce(&mut T, &[f32]) -> Result<()>,
) -> Result<()> {
    let gone = Error::ForeignLayout { op: Experts::NAME, what: "a weight that was freed" };
    let (Some(gate_up), Some(down)) = (layer.gate_up.upgrade(), layer.down.upgrade()) else { return Err(gone) };
    let HostLayer { activation, gate_up_bias, down_bias, top_k, precision, .. } = layer;
    let (top_k, hidden, inner) = (*top_k, gate_up.cols(), gate_up.rows());
    let int8 = host.reads_int8(*precision, &gate_up);
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
    let ids = &mut s.ids.as_host_mut().ok_or_else(on_host)?[..pairs];
    if int8 {
        let blocks = &mut s.int8[..tokens * hidden.div_ceil(ACT_BLOCK)];
        read(io, ids, bytemuck::cast_slice_mut(blocks))?;
        host.import_int8(blocks, tokens, hidden, &mut s.act)?;
    } else {
        let x = &mut s.x.as_host_mut().ok_or_else(on_host)?[..tokens * hidden];
        read(io, ids, bytemuck::cast_slice_mut(x))?;
        host.run(PrepareActivations { x: s.x.view(tokens, hidden)?, act: &mut s.act })?;
    }
    host.run(GroupByExpert { ids: s.ids.view(tokens, top_k)?, groups: &mut s.groups })?;
    let gate_up = MoeGateUp {
        weight: &gate_up,
        x: &s.act,
        groups: &s.groups,
        top_k,
        bias: gate_up_bias.as_ref().map(|biases| biases.each_ref()),
        activation: *activation,
        h: s.h.view_mut(pairs, inner)?,
    };
    host.run(MoeGateUpAct { gate_up, act: &mut s.h_act })?;
    host.run(MoeMatmul {
        weight: &down,
        x: &s.h_act,
        groups: &s.groups,
        top_k,
        bias: down_bias.as_ref(),
        out: s.out.view_mut(pairs, hidden)?,
    })?;
    write(io, &s.out.as_host().ok_or_else(on_host)?[..pairs * hidden])
}

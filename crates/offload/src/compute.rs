//! What the host computes of a layer: the rows of the chosen experts.

use crate::mailbox::{HIT, HostEnd, Request};
use crate::slots::{HostExpert, LayerSlots, of_parts};
use gristmill_kernels::Backend;
use gristmill_kernels::act::{ACT_BLOCK, Act, Int8Words, Precision};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::groups::Groups;
use gristmill_kernels::offload::HostMatrices;
use gristmill_kernels::ops::{
    Activation, Experts, GroupByExpert, MoeGateUp, MoeGateUpAct, MoeMatmul, Operation, PrepareActivations,
};
use gristmill_kernels::tensor::{Buffer, zeroed};
use gristmill_kernels::weight::{Role, Weight};
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

    /// The shape of the scratch for a weight of gate and up.
    fn shape(&self, host: &Backend, gate_up: &Weight) -> Shape {
        let (experts, inner, hidden) = (gate_up.experts(), gate_up.rows(), gate_up.cols());
        let int8 = host.offload().reads_int8(self.precision, gate_up);
        Shape { experts, hidden, inner, precision: self.precision, int8 }
    }

    /// What its experts consist of.
    pub(super) fn expert<'a>(&'a self, [gate_up, down]: &'a [Arc<HostMatrices>; 2]) -> HostExpert<'a> {
        let bias = |bias: Option<&'a Buffer<f32>>, rows| bias.and_then(Buffer::as_host).map(|values| (values, rows));
        let (inner, hidden) = (gate_up.weight.rows(), down.weight.rows());
        let of_gate_up = self.gate_up_bias.as_ref().map(|both| both.each_ref().map(|values| bias(Some(values), inner)));
        let parts = if gate_up.weight.role() == Role::Up { 2 } else { 3 };
        let biases = of_parts(parts, of_gate_up, bias(self.down_bias.as_ref(), hidden));
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

    /// Scratch that holds a size; another is allocated if the present one does not.
    fn fitting<'s>(this: &'s mut Option<Self>, host: &Backend, shape: Shape, size: Size) -> Result<&'s mut Self> {
        if !this.as_ref().is_some_and(|s| s.holds(shape, size)) {
            *this = None;
        }
        match this {
            Some(s) => Ok(s),
            None => {
                let [rows, pairs] = [size.rows, size.pairs].map(usize::next_power_of_two);
                Ok(this.insert(Self::new(host, shape, Size { rows, pairs, ..size })?))
            }
        }
    }

    /// Copies ids and activations of a request, and prepares the activations of the rows to compute.
    fn read_inputs(&mut self, host: &Backend, layer: &HostLayer, size: Size, end: &mut HostEnd) -> Result<()> {
        let Size { tokens, rows, pairs } = size;
        let has_slots = layer.slots.is_some();
        let ids = &mut self.ids.as_host_mut().ok_or_else(not_on_host)?[..pairs];
        match has_slots {
            true => ids.iter_mut().zip(&self.missed).for_each(|(to, &pair)| *to = self.posted[pair]),
            false => ids.copy_from_slice(&self.posted),
        }
        let hidden = self.shape.hidden;
        if self.shape.int8 {
            let width = hidden.div_ceil(ACT_BLOCK);
            let [all, own] = &mut self.int8;
            let all = &mut all[..tokens * width];
            end.read_x(bytemuck::cast_slice_mut(all))?;
            let x = if has_slots { gather(all, own, width, &self.missed, layer.top_k) } else { all };
            return host.offload().import_int8(x, rows, hidden, &mut self.act);
        }
        let [all, own] = &mut self.x;
        let x = &mut all.as_host_mut().ok_or_else(not_on_host)?[..tokens * hidden];
        end.read_x(bytemuck::cast_slice_mut(x))?;
        let x = match has_slots {
            true => {
                gather(x, own.as_host_mut().ok_or_else(not_on_host)?, hidden, &self.missed, layer.top_k);
                own
            }
            false => all,
        };
        host.run(PrepareActivations { x: x.view(rows, hidden)?, act: &mut self.act })
    }

    /// The rows of the pairs.
    fn multiply(&mut self, host: &Backend, layer: &HostLayer, weights: [&Weight; 2], size: Size) -> Result<()> {
        let Size { rows, pairs, .. } = size;
        let Shape { hidden, inner, .. } = self.shape;
        let [gate_up, down] = weights;
        let top_k = pairs / rows;
        host.run(GroupByExpert { ids: self.ids.view(rows, top_k)?, groups: &mut self.groups })?;
        host.offload().request_experts(weights, &self.groups)?;
        let gate_up = MoeGateUp {
            weight: gate_up,
            x: &self.act,
            groups: &self.groups,
            top_k,
            bias: layer.gate_up_bias.as_ref().map(|biases| biases.each_ref()),
            activation: layer.activation,
            h: self.h.view_mut(pairs, inner)?,
        };
        host.run(MoeGateUpAct { gate_up, act: &mut self.h_act })?;
        host.run(MoeMatmul {
            weight: down,
            x: &self.h_act,
            groups: &self.groups,
            top_k,
            bias: layer.down_bias.as_ref(),
            out: self.out.view_mut(pairs, hidden)?,
        })
    }

    /// Copies the rows to the mailbox.
    fn write_rows(&self, layer: &HostLayer, pairs: usize, end: &mut HostEnd) -> Result<()> {
        let hidden = self.shape.hidden;
        let out = &self.out.as_host().ok_or_else(not_on_host)?[..pairs * hidden];
        out.chunks_exact(hidden)
            .enumerate()
            .try_for_each(|(at, row)| end.write_row(if layer.slots.is_some() { self.missed[at] } else { at }, row))
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
    let weights = [&matrices[0].weight, &matrices[1].weight];
    let tokens = request.tokens;
    // The lists of the last request, which may be of another shape.
    let lists = scratch.as_mut().map(|s| (take(&mut s.posted), take(&mut s.missed)));
    let (mut posted, mut missed) = lists.unwrap_or_default();
    posted.resize(tokens * layer.top_k, 0);
    end.read_ids(&mut posted)?;
    missed.clear();
    missed.extend((0..posted.len()).filter(|&pair| posted[pair] & HIT == 0));
    // With slots, each pair that was missed has a row of its own, so no row of others is computed or cleared. Without, the device
    // copies the rows of padding too.
    let (rows, pairs) = match layer.slots {
        Some(_) => (missed.len(), missed.len()),
        None => (tokens, posted.len()),
    };
    let batch = Size { tokens, rows, pairs };
    let s = Scratch::fitting(scratch, host, layer.shape(host, weights[0]), batch)?;
    (s.posted, s.missed) = (posted, missed);
    if pairs > 0 {
        s.read_inputs(host, layer, batch, end)?;
        s.multiply(host, layer, weights, batch)?;
        s.write_rows(layer, pairs, end)?;
    }
    end.answer(request.number)?;
    Ok(&s.posted)
}

fn not_on_host() -> Error {
    Error::ForeignLayout { op: Experts::NAME, what: "the memory of the CPU's backend" }
}

/// Copies the rows of pairs, of which `top_k` share one, one after another. Returns them.
fn gather<'a, T: Copy>(from: &[T], to: &'a mut [T], width: usize, pairs: &[usize], top_k: usize) -> &'a mut [T] {
    let to = &mut to[..pairs.len() * width];
    for (row, &pair) in to.chunks_exact_mut(width).zip(pairs) {
        row.copy_from_slice(&from[pair / top_k * width..][..width]);
    }
    to
}

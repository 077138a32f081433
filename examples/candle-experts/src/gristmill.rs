//! The layer by gristmill's kernels on the CPU. Rows of candle tensors are operands without a copy.

use crate::{EXPERTS, Experts, HIDDEN, INNER, Layer, PREFILL, TOP_K};
use candle_core::quantized::QTensor;
use candle_core::{Device, Result, Storage, Tensor};
use gristmill_cpu::Level;
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::format::Format;
use gristmill_kernels::groups::Groups;
use gristmill_kernels::ops::{Activation, Epilogue, ExpertScratch, ExpertWeights, PrepareActivations, Route, Routing};
use gristmill_kernels::tensor::{Buffer, View, ViewMut};
use gristmill_kernels::weight::{Role, TensorView, Weight};
use gristmill_kernels::{Backend, ops};
use std::sync::Arc;

/// An error of gristmill as one of candle.
pub fn wrap<T>(result: gristmill_kernels::Result<T>) -> Result<T> {
    result.map_err(candle_core::Error::wrap)
}

/// Weights and scratch of the layer on any backend.
pub struct Prepared {
    pub backend: Backend,
    gate_up: Weight,
    down: Weight,
    routing: Routing,
    x: Act,
    ids: Buffer<u32>,
    shares: Buffer<f32>,
    groups: Groups,
    h: Buffer<f32>,
    h_act: Act,
    out: Buffer<f32>,
}

impl Prepared {
    /// Scratch for up to [`PREFILL`] tokens.
    pub fn new(backend: Backend, experts: &Experts) -> Result<Self> {
        let [gate, up] = [tensor("gate", &experts.gate, INNER, HIDDEN)?, tensor("up", &experts.up, INNER, HIDDEN)?];
        let down = tensor("down", &experts.down, HIDDEN, INNER)?;
        let pairs = PREFILL * TOP_K;
        Ok(Self {
            gate_up: wrap(backend.prepare(&[gate, up], Role::GateUp))?,
            down: wrap(backend.prepare(&[down], Role::Matrix))?,
            routing: Routing::softmax(TOP_K, true),
            x: wrap(backend.alloc_act(Precision::Fast, PREFILL, HIDDEN))?,
            ids: wrap(backend.alloc(pairs, "ids"))?,
            shares: wrap(backend.alloc(pairs, "shares"))?,
            groups: wrap(backend.alloc_groups(EXPERTS, pairs))?,
            h: wrap(backend.alloc(pairs * INNER, "h"))?,
            h_act: wrap(backend.alloc_act(Precision::Fast, pairs, INNER))?,
            out: wrap(backend.alloc(pairs * HIDDEN, "out"))?,
            backend,
        })
    }

    /// The layer, from rows of tokens and a router's logits.
    pub fn run(&mut self, x: View<f32>, logits: View<f32>, y: ViewMut<f32>) -> gristmill_kernels::Result<()> {
        let (tokens, pairs) = (x.rows(), x.rows() * TOP_K);
        self.backend.run(PrepareActivations { x, act: &mut self.x })?;
        let (ids, shares) = (self.ids.view_mut(tokens, TOP_K)?, self.shares.view_mut(tokens, TOP_K)?);
        self.backend.run(ops::Experts {
            route: Route::new(logits, &self.routing, ids, shares),
            weights: ExpertWeights {
                gate_up: &self.gate_up,
                down: &self.down,
                activation: Activation::SwiGlu,
                gate_up_bias: None,
                down_bias: None,
            },
            x: &self.x,
            scratch: ExpertScratch {
                groups: &mut self.groups,
                h: self.h.view_mut(pairs, INNER)?,
                act: &mut self.h_act,
                out: self.out.view_mut(pairs, HIDDEN)?,
            },
            epilogue: Epilogue::Store,
            y,
        })
    }
}

/// The matrices of all experts as one tensor: `rows` × `cols` each.
fn tensor(name: &str, experts: &[Arc<QTensor>], rows: usize, cols: usize) -> Result<TensorView> {
    let mut bytes = Vec::new();
    for expert in experts {
        bytes.extend_from_slice(&expert.data()?);
    }
    Ok(TensorView::new(name, Format::Q4_K, [EXPERTS, rows, cols], bytes))
}

/// The layer on the CPU.
pub struct Cpu(Prepared);

impl Cpu {
    pub fn new(experts: &Experts, threads: usize) -> Result<Self> {
        let backend = wrap(gristmill_cpu::Cpu::backend(Level::best(), threads))?;
        Prepared::new(backend, experts).map(Self)
    }
}

impl Layer for Cpu {
    fn name(&self) -> String {
        format!("gristmill, {}", self.0.backend.name())
    }

    fn forward(&mut self, x: &Tensor, logits: &Tensor) -> Result<Tensor> {
        let tokens = x.dim(0)?;
        let mut y = vec![0.0; tokens * HIDDEN];
        with_rows(x, |x| {
            with_rows(logits, |logits| {
                let (x, logits) = (View::of_host(x, tokens, HIDDEN), View::of_host(logits, tokens, EXPERTS));
                let y = ViewMut::of_host(&mut y, tokens, HIDDEN);
                wrap((|| self.0.run(x?, logits?, y?))())
            })
        })?;
        Tensor::from_vec(y, (tokens, HIDDEN), &Device::Cpu)
    }
}

/// Calls `work` with the elements of a contiguous f32 tensor in host memory.
pub fn with_rows<T>(tensor: &Tensor, work: impl FnOnce(&[f32]) -> Result<T>) -> Result<T> {
    let (storage, layout) = tensor.storage_and_layout();
    let (Storage::Cpu(cpu), Some((start, end))) = (&*storage, layout.contiguous_offsets()) else {
        candle_core::bail!("a contiguous tensor in host memory is needed");
    };
    work(&cpu.as_slice::<f32>()?[start..end])
}

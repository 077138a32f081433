//! One forward pass: a flat batch of tokens of several sequences to hidden states and logits. Blocks are compositions
//! of ops; each adds its output to the residual stream.

mod experts;
mod inputs;
mod norms;
mod queries;
mod recurrent;

use std::sync::Arc;

use norms::{Next, Ready};

use gristmill_kernels::Backend;
use gristmill_kernels::act::{Act, Precision, Reader};
use gristmill_kernels::kv::{KvCache, Placement};
use gristmill_kernels::ops::{
    Activation, AddGated, Attend, AttentionOptions, Embed, Epilogue, ExpertScratch, ExpertWeights, Experts, GateUp,
    GateUpAct, Matmul, Multiply, MultiplyAct, NormMatmul, PrepareActivations, QkNorms, RmsNorm, Rotary, Route, SoftCap,
};
use gristmill_kernels::tensor::{Buffer, ViewMut};
use gristmill_kernels::weight::Weight;

use super::Model;
use super::inspect::Inspect;
use super::scratch::Scratch;
use super::spec::{AttentionSpec, Mixer, ModelSpec, OutputGate};
use super::weights::{
    AttentionWeights, Block, BlockInput, MixerWeights, MlpWeights, MoeWeights, NormWeights, SharedWeights, Weights,
};
use crate::error::{Error, Result};
use crate::stage::Stage;
use crate::state::{LayerState, State};

/// Runs the first `tokens` of `scratch.tokens`, placed by `state` and rotated by `rotaries` (one for each layer), and
/// leaves their hidden states in `scratch.normed` if `outputs` asks for any, and the logits of so many rows of
/// `scratch.output_rows` in `scratch.logits`. The backend is the model's, or the one of [`Backend::make_ready`].
/// `inspect` is called with the residual stream after each stage.
pub(crate) fn forward(
    backend: &Backend,
    model: &Model,
    rotaries: &[Arc<Rotary>],
    state: &mut State,
    scratch: &mut Scratch,
    tokens: usize,
    outputs: PassOutputs,
    inspect: &mut Inspect,
) -> Result<()> {
    let weights = &model.weights;
    let step =
        Step { backend, tokens, hidden: model.spec.hidden, spec: &model.spec, precision: model.attention_precision };
    step.embed(&weights.embedding, scratch)?;
    if let Some(inputs) = &weights.layer_inputs {
        step.layer_inputs(inputs, scratch)?;
    }
    inspect(Stage::Embedding, scratch)?;
    // Where the router's choices of the next layer begin in the scratch.
    let mut choices = 0;
    for (index, ((spec, layer), rotary)) in model.spec.layers.iter().zip(&weights.layers).zip(rotaries).enumerate() {
        let block = &layer.mixer;
        let Some(state) = state.layer(index) else { return Err(Error::UnknownSequence) };
        match (&spec.mixer, &block.weights, state) {
            (Mixer::Attention(spec), MixerWeights::Attention(weights), LayerState::Kv { cache, placement }) => {
                if !layer.mlp.as_ref().is_some_and(|mlp| matches!(mlp.input, BlockInput::Mixer)) {
                    backend.name_readers(&mut scratch.act, &[Reader::dense(&weights.qkv, tokens)]);
                }
                step.attention(spec, block, weights, rotary, (cache, placement), scratch)?
            }
            (Mixer::Delta(spec), MixerWeights::Delta(weights), LayerState::Fixed(state)) => {
                step.delta(spec, block, weights, state, scratch)?;
            }
            (Mixer::Convolution(_), MixerWeights::Convolution(weights), LayerState::Fixed(state)) => {
                step.convolution(block, weights, state, scratch)?;
            }
            // Weights and state are made of the same spec.
            (_, _, _) => return Err(Error::UnknownSequence),
        }
        let (mlp, input) = (layer.mlp.as_ref(), layer.input.as_ref());
        // The last part of a layer multiplies its output.
        let factor = |is_last: bool| layer.output_scale.filter(|_| is_last).unwrap_or(1.0);
        let layer_input = input.map(Next::of_layer_input);
        let next = mlp.map_or(layer_input, Next::of_mlp);
        let is_last = mlp.is_none() && input.is_none();
        let mut ready = step.post_norm(block.post_norm.as_ref(), factor(is_last), next, scratch)?;
        if let Some(block) = mlp {
            let chosen;
            (chosen, ready) = step.mlp_block(block, choices, factor(input.is_none()), (ready, layer_input), scratch)?;
            choices += chosen;
        }
        if let Some(weights) = input {
            step.layer_input(index, weights, factor(true), ready, scratch)?;
        }
        inspect(Stage::Layer(index), scratch)?;
    }
    if outputs != PassOutputs::None {
        step.norm(&weights.output_norm, scratch)?;
    }
    match outputs {
        PassOutputs::None | PassOutputs::Hidden => Ok(()),
        PassOutputs::Logits { rows } => step.lm_head(weights, rows, scratch),
    }
}

/// The results that a pass computes behind the last layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PassOutputs {
    /// Nothing: the tokens only fill the state.
    None,
    /// The hidden states of all tokens: the residual stream after the last norm.
    Hidden,
    /// These, and the logits of some tokens.
    Logits { rows: usize },
}

type MixerBlock = Block<MixerWeights<Weight, Buffer<f32>>, Buffer<f32>>;
type MlpBlock = Block<MlpWeights<Weight, Buffer<f32>>, Buffer<f32>>;

/// The values that all blocks of one pass share.
struct Step<'a> {
    backend: &'a Backend,
    tokens: usize,
    hidden: usize,
    spec: &'a ModelSpec,
    /// The precision of attention.
    precision: Precision,
}

impl Step<'_> {
    /// Tokens to the residual stream.
    fn embed(&self, table: &Weight, s: &mut Scratch) -> Result<()> {
        let rows = s.tokens.view(self.tokens, 1)?;
        let out = s.residual.view_mut(self.tokens, self.hidden)?;
        Ok(self.backend.run(Embed { table, rows, scale: self.spec.embedding_scale, out })?)
    }

    /// act = the input of an MLP.
    fn input(&self, input: &BlockInput<Buffer<f32>>, s: &mut Scratch) -> Result<()> {
        let rows = match input {
            BlockInput::Norm(weights) => return self.norm(weights, s),
            BlockInput::Residual => &s.residual,
            BlockInput::Mixer => &s.normed,
        };
        Ok(self.backend.run(PrepareActivations { x: rows.view(self.tokens, self.hidden)?, act: &mut s.act })?)
    }

    /// `act`, and `other` if there is one, are the input of a block, y = w · act + bias.
    fn input_matmul(
        &self,
        input: &BlockInput<Buffer<f32>>,
        [residual, normed]: [&mut Buffer<f32>; 2],
        act: &mut Act,
        other: Option<&mut Act>,
        (weight, bias): (&Weight, Option<&Buffer<f32>>),
        y: ViewMut<f32>,
    ) -> Result<()> {
        let (b, t, hidden, eps) = (self.backend, self.tokens, self.hidden, self.spec.norm_eps);
        let x = residual.view(t, hidden)?;
        let x = match input {
            BlockInput::Norm(NormWeights::Rms { weight: norm }) => {
                let norm = RmsNorm { x, weight: norm, eps, out: normed.view_mut(t, hidden)? };
                return Ok(b.run(NormMatmul { norm, act, other, weight, bias, y })?);
            }
            BlockInput::Norm(weights) => {
                self.norm_rows(weights, x, normed.view_mut(t, hidden)?)?;
                normed.view(t, hidden)?
            }
            BlockInput::Residual => x,
            BlockInput::Mixer => normed.view(t, hidden)?,
        };
        for act in [Some(&mut *act), other].into_iter().flatten() {
            b.run(PrepareActivations { x, act })?;
        }
        Ok(b.run(Matmul { bias, ..Matmul::new(weight, act, y) })?)
    }

    /// The destination of a block's output: the residual stream, or `delta` if a norm follows.
    fn output<'a>(
        &self,
        post_norm: bool,
        delta: &'a mut Buffer<f32>,
        residual: &'a mut Buffer<f32>,
    ) -> Result<(Epilogue, ViewMut<'a, f32>)> {
        let (t, hidden, scale) = (self.tokens, self.hidden, self.spec.residual_scale);
        Ok(match post_norm {
            true => (Epilogue::Store, delta.view_mut(t, hidden)?),
            false => (Epilogue::Add { scale }, residual.view_mut(t, hidden)?),
        })
    }

    /// The output is output(attention(rope(qk_norm(qkv(input))))), or with rope and qk_norm in the other order.
    fn attention(
        &self,
        spec: &AttentionSpec,
        block: &MixerBlock,
        weights: &AttentionWeights<Weight, Buffer<f32>>,
        rotary: &Rotary,
        (cache, placement): (&mut KvCache, &Placement),
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b, attended) = (self.tokens, self.backend, spec.attended_columns());
        let gate = spec.gate_columns();
        let columns = gate + spec.qkv_columns();

        let (rows, qkv) = ([&mut s.residual, &mut s.normed], (&weights.qkv, weights.qkv_bias.as_ref()));
        self.input_matmul(&block.input, rows, &mut s.act, None, qkv, s.qkv.view_mut(t, columns)?)?;
        let (eps, after_rotation) = (self.spec.norm_eps, spec.norm_after_rope);
        let AttentionSpec { heads, scale, cap, temperature, window, .. } = *spec;
        let (sinks, precision) = (weights.sinks.as_ref(), self.precision);
        let options = AttentionOptions { heads, scale, temperature, window, sinks, softcap: cap, precision };
        let qkv = s.qkv.view_mut(t, columns)?.columns(gate..columns)?;
        let (out, act) = (s.attended.view_mut(t, attended)?, &mut s.act);
        if spec.gate.is_none() {
            b.name_readers(act, &[Reader::dense(&weights.output, t)]);
        }
        if spec.kv_from.is_some() {
            self.attend_queries(weights, spec, qkv, rotary, (cache, placement), options, out, act)?;
        } else {
            let qk_norm = weights.q_norm.as_ref().zip(weights.k_norm.as_ref());
            let values = weights.value_norm.as_ref();
            let norms = qk_norm.map(|(q, k)| QkNorms { weights: [q, k], values, eps, after_rotation });
            b.run(Attend { qkv, norms, rotary, cache, placement, options, out, act })?;
        }
        if let Some(OutputGate { kind, .. }) = spec.gate {
            let (x, gate) = (s.attended.view(t, attended)?, s.qkv.view(t, columns)?.columns(0..gate)?);
            let multiply = Multiply { x, gate, kind, out: s.mixed.view_mut(t, attended)? };
            b.name_readers(&mut s.act, &[Reader::dense(&weights.output, t)]);
            b.run(MultiplyAct { multiply, act: &mut s.act })?;
        }
        let (epilogue, y) = self.output(block.post_norm.is_some(), &mut s.delta, &mut s.residual)?;
        let bias = weights.output_bias.as_ref();
        Ok(b.run(Matmul { bias, epilogue, ..Matmul::new(&weights.output, &s.act, y) })?)
    }

    /// Adds the output of an MLP of either kind, and multiplies the sum. The router writes its choices from element
    /// `choices` on; returns how many there are, and whether the input of the part that follows is ready.
    fn mlp_block(
        &self,
        block: &MlpBlock,
        choices: usize,
        factor: f32,
        (ready, next): (Ready, Option<Next>),
        s: &mut Scratch,
    ) -> Result<(usize, Ready)> {
        match &block.weights {
            MlpWeights::Dense { activation, gate_up, down } => {
                self.mlp(*activation, [gate_up, down], block, ready, s)?;
            }
            MlpWeights::Moe(moe) => {
                self.moe(moe, block, choices, s)?;
                if let Some(shared) = &moe.shared {
                    self.shared_expert(moe, shared, block.post_norm.is_some() || moe.beside.is_some(), s)?;
                }
            }
        }
        let ready = match &block.weights {
            MlpWeights::Moe(MoeWeights { activation, beside: Some(beside), .. }) => {
                self.beside(*activation, beside, block, factor, s)?;
                Ready::No
            }
            _ => self.post_norm(block.post_norm.as_ref(), factor, next, s)?,
        };
        let chosen = match &block.weights {
            MlpWeights::Dense { .. } => 0,
            MlpWeights::Moe(moe) => self.tokens * moe.routing.top_k,
        };
        Ok((chosen, ready))
    }

    /// The output is down(activation(gate(input), up(input))).
    fn mlp(
        &self,
        activation: Activation,
        [gate_up, down]: [&Weight; 2],
        block: &MlpBlock,
        ready: Ready,
        s: &mut Scratch,
    ) -> Result<()> {
        if ready == Ready::No {
            self.backend.name_readers(&mut s.act, &[Reader::dense(gate_up, self.tokens)]);
            self.input(&block.input, s)?;
        }
        self.gate_up(activation, [gate_up, down], s)?;
        let (epilogue, y) = self.output(block.post_norm.is_some(), &mut s.delta, &mut s.residual)?;
        Ok(self.backend.run(Matmul { epilogue, ..Matmul::new(down, &s.inner_act, y) })?)
    }

    /// inner_act = activation(gate(act), up(act)), for `down`.
    fn gate_up(&self, activation: Activation, [weight, down]: [&Weight; 2], s: &mut Scratch) -> Result<()> {
        let h = s.inner.view_mut(self.tokens, weight.rows())?;
        self.backend.name_readers(&mut s.inner_act, &[Reader::dense(down, self.tokens)]);
        let gate_up = GateUp { weight, x: &s.act, bias: None, activation, h };
        Ok(self.backend.run(GateUpAct { gate_up, act: &mut s.inner_act })?)
    }

    /// The same as [`Self::mlp`], by the experts that the router chooses for each token: Σ weight ·
    /// expert(input). The choices are written from element `choices` on. With an MLP beside the experts their output
    /// is in `delta`.
    fn moe(
        &self,
        weights: &MoeWeights<Weight, Buffer<f32>>,
        block: &MlpBlock,
        choices: usize,
        s: &mut Scratch,
    ) -> Result<()> {
        let MoeWeights { activation, routing, selection_bias, expert_scales, gate_up, down, biases, .. } = weights;
        let stored = block.post_norm.is_some() || weights.beside.is_some();
        self.router(weights, block, s)?;
        if weights.weighs_input {
            return self.input_weighed_experts(weights, stored, choices, s);
        }
        let (t, k, hidden) = (self.tokens, routing.top_k, self.hidden);
        let (pairs, moe, biases) = (t * k, &mut s.moe, biases.as_ref());
        let (epilogue, y) = self.output(stored, &mut s.delta, &mut s.residual)?;
        Ok(self.backend.run(Experts {
            route: Route {
                logits: weights.logits(&moe.router, t)?,
                routing,
                selection_bias: selection_bias.as_ref(),
                expert_scales: expert_scales.as_ref(),
                tokens: Some(s.tokens.view(t, 1)?),
                ids: moe.ids.view_mut_at(choices, t, k)?,
                weights: moe.weights.view_mut_at(choices, t, k)?,
            },
            weights: ExpertWeights {
                gate_up,
                down,
                activation: *activation,
                gate_up_bias: biases.map(|b| [&b.gate, &b.up]),
                down_bias: biases.map(|b| &b.down),
            },
            x: &s.act,
            scratch: ExpertScratch {
                groups: &mut moe.groups,
                h: s.inner.view_mut(pairs, gate_up.rows())?,
                act: &mut s.inner_act,
                out: moe.out.view_mut(pairs, hidden)?,
            },
            epilogue,
            y,
        })?)
    }

    /// After [`Self::moe`]: adds sigmoid(gate) · expert(normed), or expert(normed) without a gate.
    fn shared_expert(
        &self,
        moe: &MoeWeights<Weight, Buffer<f32>>,
        shared: &SharedWeights<Weight>,
        post_norm: bool,
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b, hidden) = (self.tokens, self.backend, self.hidden);
        self.gate_up(moe.activation, [&shared.gate_up, &shared.down], s)?;
        let (scale, y) = if post_norm { (1.0, &mut s.delta) } else { (self.spec.residual_scale, &mut s.residual) };
        let y = y.view_mut(t, hidden)?;
        if !shared.gated {
            let epilogue = Epilogue::Add { scale };
            return Ok(b.run(Matmul { epilogue, ..Matmul::new(&shared.down, &s.inner_act, y) })?);
        }
        // The experts' outputs have been combined: their scratch is free.
        let mut out = s.moe.out.view_mut(t, hidden)?;
        b.run(Matmul::new(&shared.down, &s.inner_act, out.reborrow()))?;
        self.multiply(scale, out.reborrow())?;
        Ok(b.run(AddGated { x: out.as_view(), gate: moe.shared_gate(&s.moe.router, t)?, y })?)
    }

    /// Logits of the output rows.
    fn lm_head(&self, weights: &Weights, rows: usize, s: &mut Scratch) -> Result<()> {
        let (b, head) = (self.backend, weights.output.as_ref().unwrap_or(&weights.embedding));
        let (y, bias) = (s.logits.view_mut(rows, head.rows())?, weights.output_bias.as_ref());
        b.run(Matmul { rows: Some(s.output_rows.view(rows, 1)?), bias, ..Matmul::new(head, &s.act, y) })?;
        self.multiply(self.spec.logit_scale, s.logits.view_mut(rows, head.rows())?)?;
        if let Some(cap) = self.spec.logit_cap {
            b.run(SoftCap { cap, y: s.logits.view_mut(rows, head.rows())? })?;
        }
        Ok(())
    }
}

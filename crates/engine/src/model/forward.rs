//! One forward pass: a flat batch of tokens of several sequences to logits. Blocks are compositions of ops; each adds its
//! answer to the residual stream.

use std::sync::Arc;

use gristmill_kernels::act::Act;
use gristmill_kernels::ops::{Activation, Attention, Backend, Experts, ExpertsRoom, Finish, Norm, Rope};
use gristmill_kernels::tensor::{Buffer, View, ViewMut};
use gristmill_kernels::weight::Weight;

use super::Model;
use super::scratch::Scratch;
use super::spec::{AttentionSpec, ModelSpec};
use super::weights::{LayerWeights, MlpWeights, MoeWeights, NormWeights, SharedWeights, Weights};
use crate::error::Result;
use crate::state::{LayerState, State};

/// Runs the first `tokens` of `scratch.tokens`, placed by `state` and turned by `ropes` (one for each layer), and leaves
/// the logits of the first `rows` of `scratch.output_rows` in `scratch.logits`. The backend is the model's, or one that
/// it gave to make things ready.
pub(crate) fn forward(
    backend: &dyn Backend,
    model: &Model,
    ropes: &[Arc<Rope>],
    state: &mut State,
    scratch: &mut Scratch,
    tokens: usize,
    rows: usize,
) -> Result<()> {
    let weights = &model.weights;
    let step = Step { backend, tokens, hidden: model.spec.hidden, spec: &model.spec };
    step.embed(&weights.embedding, scratch)?;
    let layers = model.spec.layers.iter().zip(&weights.layers).zip(ropes).zip(state.layers());
    for (((spec, layer), rope), state) in layers {
        step.attention(&spec.attention, layer, rope, state, scratch)?;
        step.post_norm(layer.attention_post_norm.as_ref(), scratch)?;
        match &layer.mlp {
            MlpWeights::Dense { activation, gate_up, down } => {
                step.mlp(*activation, [gate_up, down], layer, scratch)?
            }
            MlpWeights::Moe(moe) => {
                step.moe(moe, layer, scratch)?;
                if let Some(shared) = &moe.shared {
                    step.shared_expert(moe.activation, shared, layer.mlp_post_norm.is_some(), scratch)?;
                }
            }
        }
        step.post_norm(layer.mlp_post_norm.as_ref(), scratch)?;
        step.count_experts(&layer.mlp, scratch)?;
    }
    if rows == 0 {
        return Ok(());
    }
    step.norm(&weights.output_norm, scratch)?;
    step.lm_head(weights, rows, scratch)
}

/// What all blocks of one pass share.
struct Step<'a> {
    backend: &'a dyn Backend,
    tokens: usize,
    hidden: usize,
    spec: &'a ModelSpec,
}

impl Step<'_> {
    /// Tokens to the residual stream.
    fn embed(&self, table: &Weight, s: &mut Scratch) -> Result<()> {
        let tokens = s.tokens.view(self.tokens, 1)?;
        let residual = s.residual.view_mut(self.tokens, self.hidden)?;
        Ok(self.backend.embed(table, tokens, self.spec.embedding_scale, residual)?)
    }

    /// act = norm(residual).
    fn norm(&self, weights: &NormWeights<Buffer<f32>>, s: &mut Scratch) -> Result<()> {
        let (b, t, hidden, eps) = (self.backend, self.tokens, self.hidden, self.spec.norm_eps);
        let (x, mut normed) = (s.residual.view(t, hidden)?, s.normed.view_mut(t, hidden)?);
        match weights {
            NormWeights::Rms { weight } => b.norm_act(Norm { x, weight, eps }, normed, &mut [&mut s.act])?,
            NormWeights::Layer { .. } => {
                self.norm_rows(weights, x, normed.reborrow())?;
                b.prepare_activations(normed.as_view(), &mut s.act)?;
            }
        }
        Ok(())
    }

    /// `act`, and `other` if there is one, are norm(residual), y = w · act + bias.
    fn norm_matmul(
        &self,
        weights: &NormWeights<Buffer<f32>>,
        [residual, normed]: [&mut Buffer<f32>; 2],
        act: &mut Act,
        other: Option<&mut Act>,
        (w, bias): (&Weight, Option<&Buffer<f32>>),
        y: ViewMut<f32>,
    ) -> Result<()> {
        let (b, t, hidden, eps) = (self.backend, self.tokens, self.hidden, self.spec.norm_eps);
        let (x, mut normed) = (residual.view(t, hidden)?, normed.view_mut(t, hidden)?);
        if let NormWeights::Rms { weight } = weights {
            return Ok(b.norm_matmul(Norm { x, weight, eps }, normed, act, other, w, bias, y)?);
        }
        self.norm_rows(weights, x, normed.reborrow())?;
        b.prepare_activations(normed.as_view(), act)?;
        other.map_or(Ok(()), |other| b.prepare_activations(normed.as_view(), other))?;
        Ok(b.matmul(w, act, bias, y)?)
    }

    fn norm_rows(&self, weights: &NormWeights<Buffer<f32>>, x: View<f32>, out: ViewMut<f32>) -> Result<()> {
        let (b, eps) = (self.backend, self.spec.norm_eps);
        match weights {
            NormWeights::Rms { weight } => b.rms_norm(x, weight, eps, out)?,
            NormWeights::Layer { weight, bias } => b.layer_norm(x, weight, bias, eps, out)?,
        }
        Ok(())
    }

    /// Where a block's answer goes: to the residual stream, or, if a norm comes before that, to `delta`.
    fn answer<'a>(
        &self,
        post_norm: bool,
        delta: &'a mut Buffer<f32>,
        residual: &'a mut Buffer<f32>,
    ) -> Result<(Finish<'a>, ViewMut<'a, f32>)> {
        let (t, hidden, scale) = (self.tokens, self.hidden, self.spec.residual_scale);
        let (delta, residual) = (delta.view_mut(t, hidden)?, residual.view_mut(t, hidden)?);
        Ok(if post_norm { (Finish::Store, delta) } else { (Finish::Add { scale, room: delta }, residual) })
    }

    /// With a post norm: residual += scale · post_norm(delta).
    fn post_norm(&self, weights: Option<&NormWeights<Buffer<f32>>>, s: &mut Scratch) -> Result<()> {
        let (t, scale) = (self.tokens, self.spec.residual_scale);
        let Some(weights) = weights else { return Ok(()) };
        // The block has read its normed input.
        self.norm_rows(weights, s.delta.view(t, self.hidden)?, s.normed.view_mut(t, self.hidden)?)?;
        let normed = s.normed.view(t, self.hidden)?;
        Ok(self.backend.add(normed, scale, s.residual.view_mut(t, self.hidden)?)?)
    }

    /// The answer is output(attention(rope(qk_norm(qkv(norm(residual)))))).
    fn attention(
        &self,
        spec: &AttentionSpec,
        layer: &LayerWeights<Weight, Buffer<f32>>,
        rope: &Rope,
        state: LayerState,
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b, columns, weights) = (self.tokens, self.backend, spec.qkv_columns(), &layer.attention);

        let (rows, qkv) = ([&mut s.residual, &mut s.normed], (&weights.qkv, weights.qkv_bias.as_ref()));
        self.norm_matmul(&layer.attention_norm, rows, &mut s.act, None, qkv, s.qkv.view_mut(t, columns)?)?;
        let norms = weights.qk_norm.as_ref().map(|[q, k]| ([q, k], self.spec.norm_eps));
        let (heads, scale, window, sinks) = (spec.heads, spec.scale, spec.window, weights.sinks.as_ref());
        let parameters = Attention { heads, scale, window, sinks, softcap: None };
        let (qkv, out) = (s.qkv.view_mut(t, columns)?, s.attended.view_mut(t, spec.attended_columns())?);
        b.attend(qkv, norms, rope, state.cache, state.place, &parameters, out, &mut s.act)?;
        let (finish, y) = self.answer(layer.attention_post_norm.is_some(), &mut s.delta, &mut s.residual)?;
        Ok(b.matmul_finish(&weights.output, &s.act, weights.output_bias.as_ref(), finish, y)?)
    }

    /// The answer is down(activation(gate(norm(residual)), up(norm(residual)))).
    fn mlp(
        &self,
        activation: Activation,
        [gate_up, down]: [&Weight; 2],
        layer: &LayerWeights<Weight, Buffer<f32>>,
        s: &mut Scratch,
    ) -> Result<()> {
        self.norm(&layer.mlp_norm, s)?;
        self.gate_up(activation, gate_up, s)?;
        let (finish, y) = self.answer(layer.mlp_post_norm.is_some(), &mut s.delta, &mut s.residual)?;
        Ok(self.backend.matmul_finish(down, &s.inner_act, None, finish, y)?)
    }

    /// inner_act = activation(gate(act), up(act)).
    fn gate_up(&self, activation: Activation, gate_up: &Weight, s: &mut Scratch) -> Result<()> {
        let inner = s.inner.view_mut(self.tokens, gate_up.rows())?;
        Ok(self.backend.gate_up_act(gate_up, &s.act, None, activation, inner, &mut s.inner_act)?)
    }

    /// As [`Self::mlp`], by the experts that the router chooses for each token: Σ weight · expert(norm(residual)).
    fn moe(
        &self,
        weights: &MoeWeights<Weight, Buffer<f32>>,
        layer: &LayerWeights<Weight, Buffer<f32>>,
        s: &mut Scratch,
    ) -> Result<()> {
        let MoeWeights { activation, routing, router, gate_up, down, biases, .. } = weights;
        let (t, b, k, hidden) = (self.tokens, self.backend, routing.top_k, self.hidden);
        let (count, pairs, moe, biases) = (router.rows(), t * k, &mut s.moe, biases.as_ref());

        let (rows, router) = ([&mut s.residual, &mut s.normed], (router, biases.map(|b| &b.router)));
        let logits = moe.router.view_mut(t, count)?;
        self.norm_matmul(&layer.mlp_norm, rows, &mut moe.act, Some(&mut s.act), router, logits)?;

        let experts = Experts {
            gate_up,
            down,
            activation: *activation,
            gate_up_bias: biases.map(|b| [&b.gate, &b.up]),
            down_bias: biases.map(|b| &b.down),
        };
        let room = ExpertsRoom {
            ids: moe.ids.view_mut(t, k)?,
            weights: moe.weights.view_mut(t, k)?,
            groups: &mut moe.groups,
            h: s.inner.view_mut(pairs, gate_up.rows())?,
            act: &mut s.inner_act,
            out: moe.out.view_mut(pairs, hidden)?,
        };
        let (finish, y) = self.answer(layer.mlp_post_norm.is_some(), &mut s.delta, &mut s.residual)?;
        Ok(b.experts(&experts, &s.act, moe.router.view(t, count)?, routing, room, finish, y)?)
    }

    /// After [`Self::moe`]: adds sigmoid(gate · normed) · expert(normed) to its answer, or that without the gate.
    fn shared_expert(
        &self,
        activation: Activation,
        shared: &SharedWeights<Weight>,
        post_norm: bool,
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b, hidden) = (self.tokens, self.backend, self.hidden);
        self.gate_up(activation, &shared.gate_up, s)?;
        let (scale, y) = if post_norm { (1.0, &mut s.delta) } else { (self.spec.residual_scale, &mut s.residual) };
        let y = y.view_mut(t, hidden)?;
        // What the experts answered has been combined: there is room for one more.
        let mut room = s.moe.out.view_mut(t, hidden)?;
        let Some(gate) = &shared.gate else {
            return Ok(b.matmul_finish(&shared.down, &s.inner_act, None, Finish::Add { scale, room }, y)?);
        };
        b.matmul(&shared.down, &s.inner_act, None, room.reborrow())?;
        if scale != 1.0 {
            b.scale(scale, room.reborrow())?;
        }
        // The router's input is the gate's too; its logits have been used.
        b.matmul(gate, &s.moe.act, None, s.moe.router.view_mut(t, 1)?)?;
        Ok(b.add_gated(room.as_view(), s.moe.router.view(t, 1)?, y)?)
    }

    /// Keeps what the layer's router chose, if someone asked to know: a trip to the host for each layer.
    fn count_experts(&self, mlp: &MlpWeights<Weight, Buffer<f32>>, s: &mut Scratch) -> Result<()> {
        let Some(chosen) = &mut s.moe.chosen else { return Ok(()) };
        let mut counts = Vec::new();
        if let MlpWeights::Moe(MoeWeights { router, routing, .. }) = mlp {
            counts.resize(router.rows(), 0);
            let ids = s.moe.ids.view(self.tokens, routing.top_k)?;
            self.backend.group_by_expert(ids, router.rows(), &mut s.moe.groups)?;
            self.backend.download_u32(s.moe.groups.counts().view(router.rows(), 1)?, &mut counts)?;
        }
        chosen.push(counts);
        Ok(())
    }

    /// Logits of the output rows.
    fn lm_head(&self, weights: &Weights, rows: usize, s: &mut Scratch) -> Result<()> {
        let (b, head) = (self.backend, weights.output.as_ref().unwrap_or(&weights.embedding));
        let vocab = head.rows();
        b.matmul_rows(head, &s.act, s.output_rows.view(rows, 1)?, s.logits.view_mut(rows, vocab)?)?;
        if let Some(bias) = &weights.output_bias {
            b.add_bias(bias, s.logits.view_mut(rows, vocab)?)?;
        }
        if self.spec.logit_scale != 1.0 {
            b.scale(self.spec.logit_scale, s.logits.view_mut(rows, vocab)?)?;
        }
        Ok(())
    }
}

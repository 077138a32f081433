//! One forward pass: a flat batch of tokens of several sequences to logits. Blocks are compositions of ops; each leaves
//! in `delta` what the next norm adds to the residual stream.

use std::sync::Arc;

use gristmill_kernels::act::Act;
use gristmill_kernels::ops::{Activation, Attention, Backend, Rope};
use gristmill_kernels::tensor::{Buffer, View, ViewMut};
use gristmill_kernels::weight::Weight;

use super::Model;
use super::scratch::Scratch;
use super::spec::{AttentionSpec, ModelSpec};
use super::weights::{AttentionWeights, MlpWeights, MoeWeights, NormWeights, SharedWeights, Weights};
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
    // Whether `delta` waits to be added to the residual stream, which the next norm does.
    let mut pending = false;
    let layers = model.spec.layers.iter().zip(&weights.layers).zip(ropes).zip(state.layers());
    for (((spec, weights), rope), state) in layers {
        step.norm(pending, &weights.attention_norm, Readers::Products, scratch)?;
        step.attention(&spec.attention, &weights.attention, rope, state, scratch)?;
        pending = step.end_block(weights.attention_post_norm.as_ref(), scratch)?;
        match &weights.mlp {
            MlpWeights::Dense { activation, gate_up, down } => {
                step.norm(pending, &weights.mlp_norm, Readers::Products, scratch)?;
                step.mlp(*activation, gate_up, down, scratch)?;
            }
            MlpWeights::Moe(moe) => {
                step.norm(pending, &weights.mlp_norm, Readers::ProductsAndRouter, scratch)?;
                step.moe(moe, scratch)?;
                if let Some(shared) = &moe.shared {
                    step.shared_expert(moe.activation, shared, scratch)?;
                }
            }
        }
        pending = step.end_block(weights.mlp_post_norm.as_ref(), scratch)?;
        step.count_experts(&weights.mlp, scratch)?;
    }
    if rows == 0 {
        return Ok(());
    }
    step.norm(pending, &weights.output_norm, Readers::Products, scratch)?;
    step.lm_head(weights, rows, scratch)
}

/// Who reads a normalised residual stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    Products,
    ProductsAndRouter,
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

    /// residual += delta if that is pending, normed = norm(residual), and its activations for those who read them.
    fn norm(&self, pending: bool, weights: &NormWeights<Buffer<f32>>, readers: Readers, s: &mut Scratch) -> Result<()> {
        let (b, t, hidden, scale) = (self.backend, self.tokens, self.hidden, self.spec.residual_scale);
        let delta = if pending { Some((s.delta.view(t, hidden)?, scale)) } else { None };
        let (mut residual, mut normed) = (s.residual.view_mut(t, hidden)?, s.normed.view_mut(t, hidden)?);
        let (mut both, mut one);
        let acts: &mut [&mut Act] = match readers {
            Readers::ProductsAndRouter => {
                both = [&mut s.act, &mut s.moe.act];
                &mut both
            }
            Readers::Products => {
                one = [&mut s.act];
                &mut one
            }
        };
        match weights {
            NormWeights::Rms { weight } => b.add_norm(delta, residual, weight, self.spec.norm_eps, normed, acts)?,
            NormWeights::Layer { .. } => {
                if let Some((delta, scale)) = delta {
                    b.add(delta, scale, residual.reborrow())?;
                }
                self.norm_rows(weights, residual.as_view(), normed.reborrow())?;
                acts.iter_mut().try_for_each(|act| b.prepare_activations(normed.as_view(), act))?;
            }
        }
        Ok(())
    }

    fn norm_rows(&self, weights: &NormWeights<Buffer<f32>>, x: View<f32>, out: ViewMut<f32>) -> Result<()> {
        let (b, eps) = (self.backend, self.spec.norm_eps);
        match weights {
            NormWeights::Rms { weight } => b.rms_norm(x, weight, eps, out)?,
            NormWeights::Layer { weight, bias } => b.layer_norm(x, weight, bias, eps, out)?,
        }
        Ok(())
    }

    /// Without a post norm, `delta` is left for the next norm to add. Otherwise residual += scale · post_norm(delta).
    fn end_block(&self, post_norm: Option<&NormWeights<Buffer<f32>>>, s: &mut Scratch) -> Result<bool> {
        let (t, scale) = (self.tokens, self.spec.residual_scale);
        let Some(weights) = post_norm else { return Ok(true) };
        // The block has read its normed input.
        self.norm_rows(weights, s.delta.view(t, self.hidden)?, s.normed.view_mut(t, self.hidden)?)?;
        let normed = s.normed.view(t, self.hidden)?;
        self.backend.add(normed, scale, s.residual.view_mut(t, self.hidden)?)?;
        Ok(false)
    }

    /// delta = output(attention(rope(qk_norm(qkv(normed))))).
    fn attention(
        &self,
        spec: &AttentionSpec,
        weights: &AttentionWeights<Weight, Buffer<f32>>,
        rope: &Rope,
        state: LayerState,
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b, columns) = (self.tokens, self.backend, spec.qkv_columns());

        b.matmul(&weights.qkv, &s.act, weights.qkv_bias.as_ref(), s.qkv.view_mut(t, columns)?)?;
        let norms = weights.qk_norm.as_ref().map(|[q, k]| ([q, k], self.spec.norm_eps));
        let (heads, scale, window, sinks) = (spec.heads, spec.scale, spec.window, weights.sinks.as_ref());
        let parameters = Attention { heads, scale, window, sinks, softcap: None };
        let (qkv, out) = (s.qkv.view_mut(t, columns)?, s.attended.view_mut(t, spec.attended_columns())?);
        b.attend(qkv, norms, rope, state.cache, state.place, &parameters, out, &mut s.act)?;
        let delta = s.delta.view_mut(t, self.hidden)?;
        Ok(b.matmul(&weights.output, &s.act, weights.output_bias.as_ref(), delta)?)
    }

    /// delta = down(activation(gate(normed), up(normed))).
    fn mlp(&self, activation: Activation, gate_up: &Weight, down: &Weight, s: &mut Scratch) -> Result<()> {
        self.gate_up(activation, gate_up, s)?;
        Ok(self.backend.matmul(down, &s.inner_act, None, s.delta.view_mut(self.tokens, self.hidden)?)?)
    }

    /// inner_act = activation(gate(normed), up(normed)).
    fn gate_up(&self, activation: Activation, gate_up: &Weight, s: &mut Scratch) -> Result<()> {
        let inner = s.inner.view_mut(self.tokens, gate_up.rows())?;
        Ok(self.backend.gate_up_act(gate_up, &s.act, None, activation, inner, &mut s.inner_act)?)
    }

    /// As [`Self::mlp`], by the experts that the router chooses for each token: delta = Σ weight · expert(normed).
    fn moe(&self, weights: &MoeWeights<Weight, Buffer<f32>>, s: &mut Scratch) -> Result<()> {
        let MoeWeights { activation, routing, router, gate_up, down, biases, .. } = weights;
        let (t, b, inner, k) = (self.tokens, self.backend, gate_up.rows(), routing.top_k);
        let (experts, pairs, moe) = (router.rows(), t * k, &mut s.moe);
        let biases = biases.as_ref();

        b.matmul(router, &moe.act, biases.map(|b| &b.router), moe.router.view_mut(t, experts)?)?;
        let (ids, weights) = (moe.ids.view_mut(t, k)?, moe.weights.view_mut(t, k)?);
        b.route_and_group(moe.router.view(t, experts)?, routing, None, ids, weights, &mut moe.groups)?;

        let (bias, inside) = (biases.map(|b| [&b.gate, &b.up]), s.inner.view_mut(pairs, inner)?);
        b.moe_gate_up_act(gate_up, &s.act, &moe.groups, k, bias, *activation, inside, &mut s.inner_act)?;
        let (out, weights) = (moe.out.view_mut(pairs, self.hidden)?, moe.weights.view(t, k)?);
        let (bias, delta) = (biases.map(|b| &b.down), s.delta.view_mut(t, self.hidden)?);
        Ok(b.moe_matmul_combine(down, &s.inner_act, &moe.groups, bias, weights, out, delta)?)
    }

    /// After [`Self::moe`]: delta += sigmoid(gate · normed) · expert(normed), or without the gate.
    fn shared_expert(&self, activation: Activation, shared: &SharedWeights<Weight>, s: &mut Scratch) -> Result<()> {
        let (t, b, hidden) = (self.tokens, self.backend, self.hidden);
        self.gate_up(activation, &shared.gate_up, s)?;
        // What the experts answered has been combined: there is room for one more.
        b.matmul(&shared.down, &s.inner_act, None, s.moe.out.view_mut(t, hidden)?)?;
        let Some(gate) = &shared.gate else {
            return Ok(b.add(s.moe.out.view(t, hidden)?, 1.0, s.delta.view_mut(t, hidden)?)?);
        };
        // The router's input is the gate's too; its logits have been used.
        b.matmul(gate, &s.moe.act, None, s.moe.router.view_mut(t, 1)?)?;
        let (x, y) = (s.moe.out.view(t, hidden)?, s.delta.view_mut(t, hidden)?);
        Ok(b.add_gated(x, s.moe.router.view(t, 1)?, y)?)
    }

    /// Keeps what the layer's router chose, if someone asked to know: a trip to the host for each layer.
    fn count_experts(&self, mlp: &MlpWeights<Weight, Buffer<f32>>, s: &mut Scratch) -> Result<()> {
        let (Some(chosen), groups) = (&mut s.moe.chosen, &s.moe.groups) else { return Ok(()) };
        let mut counts = Vec::new();
        if let MlpWeights::Moe(MoeWeights { router, .. }) = mlp {
            counts.resize(router.rows(), 0);
            self.backend.download_u32(groups.counts().view(router.rows(), 1)?, &mut counts)?;
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

//! One forward pass: a flat batch of tokens of several sequences to logits. Blocks are compositions of ops; each adds
//! its output to the residual stream.

use gristmill_kernels::ops::{Activation, Attention, Backend, Rope, Routing};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Weight;

use super::Model;
use super::scratch::Scratch;
use super::spec::AttentionSpec;
use super::weights::{AttentionWeights, MlpWeights, SharedWeights};
use crate::error::Result;
use crate::state::{LayerState, State};

/// Runs the first `tokens` of `scratch.tokens`, placed by `state`, and leaves the logits of the first `rows` of
/// `scratch.output_rows` in `scratch.logits`.
pub(crate) fn forward(
    model: &Model,
    state: &mut State,
    scratch: &mut Scratch,
    tokens: usize,
    rows: usize,
) -> Result<()> {
    let weights = &model.weights;
    let step = Step { backend: &*model.backend, tokens, hidden: model.spec.hidden, eps: model.spec.norm_eps };
    step.embed(&weights.embedding, scratch)?;
    let layers = model.spec.layers.iter().zip(&weights.layers).zip(&model.ropes).zip(state.layers());
    for (((spec, weights), rope), state) in layers {
        step.norm(&weights.attention_norm, scratch)?;
        step.attention(&spec.attention, &weights.attention, rope, state, scratch)?;
        step.norm(&weights.mlp_norm, scratch)?;
        match &weights.mlp {
            MlpWeights::Dense { activation, gate_up, down } => step.mlp(*activation, gate_up, down, scratch)?,
            MlpWeights::Moe { activation, routing, router, gate_up, down, shared } => {
                step.moe(*activation, routing, router, gate_up, down, scratch)?;
                if let Some(shared) = shared {
                    step.shared_expert(*activation, shared, scratch)?;
                }
            }
        }
        step.count_experts(&weights.mlp, scratch)?;
    }
    step.lm_head(&weights.output_norm, &weights.output, rows, scratch)
}

/// What all blocks of one pass share.
struct Step<'a> {
    backend: &'a dyn Backend,
    tokens: usize,
    hidden: usize,
    eps: f32,
}

impl Step<'_> {
    /// Tokens to the residual stream.
    fn embed(&self, table: &Weight, s: &mut Scratch) -> Result<()> {
        let tokens = s.tokens.view(self.tokens, 1)?;
        Ok(self.backend.embed(table, tokens, 1.0, s.residual.view_mut(self.tokens, self.hidden)?)?)
    }

    /// The residual stream, normalised.
    fn norm(&self, weight: &Buffer<f32>, s: &mut Scratch) -> Result<()> {
        let (x, out) = (s.residual.view(self.tokens, self.hidden)?, s.normed.view_mut(self.tokens, self.hidden)?);
        Ok(self.backend.rms_norm(x, weight, self.eps, out)?)
    }

    /// residual += delta.
    fn add(&self, s: &mut Scratch) -> Result<()> {
        let (x, y) = (s.delta.view(self.tokens, self.hidden)?, s.residual.view_mut(self.tokens, self.hidden)?);
        Ok(self.backend.add(x, y)?)
    }

    /// residual += output(attention(rope(qk_norm(qkv(normed))))).
    fn attention(
        &self,
        spec: &AttentionSpec,
        weights: &AttentionWeights<Weight, Buffer<f32>>,
        rope: &Rope,
        state: LayerState,
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b) = (self.tokens, self.backend);
        let columns = spec.qkv_columns();
        let (k, v) = (spec.query_columns(), spec.query_columns() + spec.key_columns());

        b.prepare_activations(s.normed.view(t, self.hidden)?, &mut s.act)?;
        b.matmul(&weights.qkv, &s.act, weights.qkv_bias.as_ref(), s.qkv.view_mut(t, columns)?)?;
        if let Some([q_norm, k_norm]) = &weights.qk_norm {
            b.qk_norm(s.qkv.view_mut(t, columns)?.columns(0..k)?, q_norm, self.eps)?;
            b.qk_norm(s.qkv.view_mut(t, columns)?.columns(k..v)?, k_norm, self.eps)?;
        }
        // Queries and keys are neighbours and have the same width: one rotation serves both.
        let positions = state.place.positions.view(t, 1)?;
        b.rope(s.qkv.view_mut(t, columns)?.columns(0..v)?, spec.key_width, positions, rope)?;

        let qkv = s.qkv.view(t, columns)?;
        b.kv_write(state.cache, qkv.columns(k..v)?, qkv.columns(v..columns)?, state.place)?;
        let parameters =
            Attention { heads: spec.heads, scale: spec.scale, window: spec.window, sinks: None, softcap: None };
        let width = spec.attended_columns();
        let out = s.attended.view_mut(t, width)?;
        b.attention(qkv.columns(0..k)?, state.cache, state.place, &parameters, out)?;

        b.prepare_activations(s.attended.view(t, width)?, &mut s.act)?;
        let delta = s.delta.view_mut(t, self.hidden)?;
        b.matmul(&weights.output, &s.act, weights.output_bias.as_ref(), delta)?;
        self.add(s)
    }

    /// residual += down(activation(gate(normed), up(normed))).
    fn mlp(&self, activation: Activation, gate_up: &Weight, down: &Weight, s: &mut Scratch) -> Result<()> {
        self.gated(activation, gate_up, down, s)?;
        self.add(s)
    }

    /// delta = down(activation(gate(normed), up(normed))).
    fn gated(&self, activation: Activation, gate_up: &Weight, down: &Weight, s: &mut Scratch) -> Result<()> {
        let (t, b, inner) = (self.tokens, self.backend, gate_up.rows());
        b.prepare_activations(s.normed.view(t, self.hidden)?, &mut s.act)?;
        b.gate_up(gate_up, &s.act, None, activation, s.inner.view_mut(t, inner)?)?;
        b.prepare_activations(s.inner.view(t, inner)?, &mut s.act)?;
        Ok(b.matmul(down, &s.act, None, s.delta.view_mut(t, self.hidden)?)?)
    }

    /// As [`Self::mlp`], by the experts that the router chooses for each token: residual += Σ weight · expert(normed).
    fn moe(
        &self,
        activation: Activation,
        routing: &Routing,
        router: &Weight,
        gate_up: &Weight,
        down: &Weight,
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b, inner, k) = (self.tokens, self.backend, gate_up.rows(), routing.top_k);
        let (experts, pairs, moe) = (router.rows(), t * k, &mut s.moe);
        let normed = s.normed.view(t, self.hidden)?;

        b.prepare_activations(normed, &mut moe.act)?;
        b.matmul(router, &moe.act, None, moe.router.view_mut(t, experts)?)?;
        let (ids, weights) = (moe.ids.view_mut(t, k)?, moe.weights.view_mut(t, k)?);
        b.route(moe.router.view(t, experts)?, routing, None, ids, weights)?;
        b.group_by_expert(moe.ids.view(t, k)?, experts, &mut moe.groups)?;

        b.prepare_activations(normed, &mut s.act)?;
        b.moe_gate_up(gate_up, &s.act, &moe.groups, k, None, activation, s.inner.view_mut(pairs, inner)?)?;
        b.prepare_activations(s.inner.view(pairs, inner)?, &mut s.act)?;
        b.moe_matmul(down, &s.act, &moe.groups, k, None, moe.out.view_mut(pairs, self.hidden)?)?;
        let (out, weights) = (moe.out.view(pairs, self.hidden)?, moe.weights.view(t, k)?);
        Ok(b.moe_combine(out, weights, s.residual.view_mut(t, self.hidden)?)?)
    }

    /// As [`Self::mlp`], after [`Self::moe`]: residual += sigmoid(gate · normed) · expert(normed).
    fn shared_expert(&self, activation: Activation, shared: &SharedWeights<Weight>, s: &mut Scratch) -> Result<()> {
        self.gated(activation, &shared.gate_up, &shared.down, s)?;
        let Some(gate) = &shared.gate else { return self.add(s) };
        let (t, b) = (self.tokens, self.backend);
        // The router's input is the gate's too; its logits have been used.
        b.matmul(gate, &s.moe.act, None, s.moe.router.view_mut(t, 1)?)?;
        let (x, y) = (s.delta.view(t, self.hidden)?, s.residual.view_mut(t, self.hidden)?);
        Ok(b.add_gated(x, s.moe.router.view(t, 1)?, y)?)
    }

    /// Keeps what the layer's router chose, if someone asked to know: a trip to the host for each layer.
    fn count_experts(&self, mlp: &MlpWeights<Weight>, s: &mut Scratch) -> Result<()> {
        let (Some(chosen), groups) = (&mut s.moe.chosen, &s.moe.groups) else { return Ok(()) };
        let mut counts = Vec::new();
        if let MlpWeights::Moe { router, .. } = mlp {
            counts.resize(router.rows(), 0);
            self.backend.download_u32(groups.counts().view(router.rows(), 1)?, &mut counts)?;
        }
        chosen.push(counts);
        Ok(())
    }

    /// Logits of the output rows.
    fn lm_head(&self, norm: &Buffer<f32>, output: &Weight, rows: usize, s: &mut Scratch) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        self.norm(norm, s)?;
        self.backend.prepare_activations(s.normed.view(self.tokens, self.hidden)?, &mut s.act)?;
        let (wanted, logits) = (s.output_rows.view(rows, 1)?, s.logits.view_mut(rows, output.rows())?);
        Ok(self.backend.matmul_rows(output, &s.act, wanted, logits)?)
    }
}

//! Routers with a norm of their own, experts whose input is weighed, and an MLP beside experts.

use gristmill_kernels::act::Reader;
use gristmill_kernels::ops::{
    Activation, Add, AddNorms, GateKind, Matmul, MoeGateUp, MoeGateUpAct, MoeMatmul, Multiply, MultiplyAct,
    PrepareActivations, RmsNorm, Route, RouteAndGroup,
};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Weight;

use super::{MlpBlock, Step};
use crate::error::Result;
use crate::model::scratch::Scratch;
use crate::model::weights::{BesideWeights, MoeWeights};

impl Step<'_> {
    /// The router's logits, and the experts' input as activations.
    pub(super) fn router(
        &self,
        weights: &MoeWeights<Weight, Buffer<f32>>,
        block: &MlpBlock,
        s: &mut Scratch,
    ) -> Result<()> {
        // Experts whose input is weighed read the rows of the norm too.
        if !weights.weighs_input {
            self.name_readers_of_input(weights, s);
        }
        let bias = weights.biases.as_ref().map(|biases| &biases.router);
        let (router, rows) = ((&weights.router, bias), [&mut s.residual, &mut s.normed]);
        let logits = s.moe.router.view_mut(self.tokens, weights.router.rows())?;
        let input = weights.beside.as_ref().map_or(&block.input, |beside| &beside.experts_norm);
        let Some(own) = &weights.router_norm else {
            return self.input_matmul(input, rows, &mut s.moe.act, Some(&mut s.act), router, logits);
        };
        self.input_matmul(own, rows, &mut s.moe.act, None, router, logits)?;
        self.input(input, s)
    }

    fn name_readers_of_input(&self, weights: &MoeWeights<Weight, Buffer<f32>>, s: &mut Scratch) {
        let (b, t, shared) = (self.backend, self.tokens, weights.shared.as_ref());
        b.name_readers(&mut s.moe.act, &[Reader::dense(&weights.router, t)]);
        let experts = Reader::experts(&weights.gate_up, t, weights.routing.top_k);
        let readers: Vec<_> =
            [experts].into_iter().chain(shared.map(|shared| Reader::dense(&shared.gate_up, t))).collect();
        b.name_readers(&mut s.act, &readers);
    }

    /// The chosen expert of each token, from the router's logits on: expert(weight · normed). The activations are
    /// `normed` again afterwards.
    pub(super) fn input_weighed_experts(
        &self,
        weights: &MoeWeights<Weight, Buffer<f32>>,
        stored: bool,
        choices: usize,
        s: &mut Scratch,
    ) -> Result<()> {
        let MoeWeights { activation, routing, selection_bias, expert_scales, gate_up, down, .. } = weights;
        let (b, t, hidden, moe) = (self.backend, self.tokens, self.hidden, &mut s.moe);
        let route = Route {
            logits: weights.logits(&moe.router, t)?,
            routing,
            selection_bias: selection_bias.as_ref(),
            expert_scales: expert_scales.as_ref(),
            tokens: Some(s.tokens.view(t, 1)?),
            ids: moe.ids.view_mut_at(choices, t, 1)?,
            weights: moe.weights.view_mut_at(choices, t, 1)?,
        };
        b.run(RouteAndGroup { route, groups: &mut moe.groups })?;
        let (x, gate) = (s.normed.view(t, hidden)?, moe.weights.view_mut_at(choices, t, 1)?);
        let mut out = moe.out.view_mut(t, hidden)?;
        let multiply = Multiply { x, gate: gate.as_view(), kind: GateKind::Linear, out: out.reborrow() };
        b.run(MultiplyAct { multiply, act: &mut s.act })?;

        let (h, groups) = (s.inner.view_mut(t, gate_up.rows())?, &moe.groups);
        let (top_k, activation) = (1, *activation);
        let gate_up = MoeGateUp { weight: gate_up, x: &s.act, groups, top_k, bias: None, activation, h };
        b.run(MoeGateUpAct { gate_up, act: &mut s.inner_act })?;
        // There is one expert for each token: its output is that of the block.
        if stored {
            out = s.delta.view_mut(t, hidden)?;
        }
        b.run(MoeMatmul { weight: down, x: &s.inner_act, groups, top_k, bias: None, out: out.reborrow() })?;
        if !stored {
            let (scale, y) = (self.spec.residual_scale, s.residual.view_mut(t, hidden)?);
            b.run(Add { x: out.as_view(), scale, y })?;
        }
        Ok(b.run(PrepareActivations { x: s.normed.view(t, hidden)?, act: &mut s.act })?)
    }

    /// After the experts, whose output is in `delta`: residual = factor · (residual + scale ·
    /// norm(norm₁(delta) + norm₂(mlp(norm(residual))))).
    pub(super) fn beside(
        &self,
        activation: Activation,
        weights: &BesideWeights<Weight, Buffer<f32>>,
        block: &MlpBlock,
        factor: f32,
        s: &mut Scratch,
    ) -> Result<()> {
        let (b, t, hidden, eps) = (self.backend, self.tokens, self.hidden, self.spec.norm_eps);
        self.input(&block.input, s)?;
        self.gate_up(activation, [&weights.gate_up, &weights.down], s)?;
        // The experts' outputs have been combined: their scratch is free.
        b.run(Matmul::new(&weights.down, &s.inner_act, s.moe.out.view_mut(t, hidden)?))?;
        let ([of_experts, of_mlp], weight) = (&weights.post_norms, &weights.sum_norm);
        let (x, out) = (s.delta.view(t, hidden)?, s.mixed.view_mut(t, hidden)?);
        let experts = RmsNorm { x, weight: of_experts, eps, out };
        let (x, out) = (s.moe.out.view(t, hidden)?, s.normed.view_mut(t, hidden)?);
        let norms = [experts, RmsNorm { x, weight: of_mlp, eps, out }];
        let y = s.residual.view_mut(t, hidden)?;
        Ok(b.run(AddNorms { norms, weight, eps, scale: self.spec.residual_scale, factor, y })?)
    }
}

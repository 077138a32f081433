//! Mixers whose state has a fixed size.

use gristmill_kernels::act::Reader;
use gristmill_kernels::ops::{
    CausalConv, DeltaHeads, DeltaRule, GateKind, GatedNorm, Matmul, Multiply, MultiplyAct, PrepareActivations,
};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Weight;

use super::{MixerBlock, Step};
use crate::error::Result;
use crate::model::scratch::Scratch;
use crate::model::spec::DeltaSpec;
use crate::model::weights::{ConvolutionWeights, DeltaWeights};
use crate::state::FixedLayer;

impl Step<'_> {
    /// The output is output(gated_norm(delta_rule(silu(convolution(qkv)), beta, alpha), gate)).
    pub(super) fn delta(
        &self,
        spec: &DeltaSpec,
        block: &MixerBlock,
        weights: &DeltaWeights<Weight, Buffer<f32>>,
        state: FixedLayer,
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b, heads, slots) = (self.tokens, self.backend, spec.heads, state.slots);
        let DeltaHeads { values, width, .. } = heads;
        // Queries, keys and values, the gate, β and α.
        let [qkv, gate, beta] = [heads.columns(), values * width, values];
        let all = qkv + gate + 2 * beta;

        let rows = [&mut s.residual, &mut s.normed];
        self.input_matmul(&block.input, rows, &mut s.act, None, (&weights.input, None), s.qkv.view_mut(t, all)?)?;
        let input = s.qkv.view(t, all)?;
        b.run(CausalConv {
            x: input.columns(0..qkv)?,
            weight: &weights.convolution,
            bias: None,
            silu: true,
            state: state.convolution.view_mut(slots, (spec.taps - 1) * qkv)?,
            runs: state.runs,
            out: s.mixed.view_mut(t, qkv)?,
        })?;
        b.run(DeltaRule {
            qkv: s.mixed.view(t, qkv)?,
            beta: input.columns(qkv + gate..qkv + gate + beta)?,
            alpha: input.columns(qkv + gate + beta..all)?,
            decay: &weights.decay,
            dt_bias: &weights.dt_bias,
            heads,
            state: state.delta.view_mut(slots, heads.state())?,
            runs: state.runs,
            out: s.attended.view_mut(t, gate)?,
        })?;
        let (x, eps) = (s.attended.view_mut(t, gate)?, self.spec.norm_eps);
        b.run(GatedNorm { x, gate: input.columns(qkv..qkv + gate)?, weight: &weights.norm, eps })?;
        b.run(PrepareActivations { x: s.attended.view(t, gate)?, act: &mut s.act })?;
        let (epilogue, y) = self.output(block.post_norm.is_some(), &mut s.delta, &mut s.residual)?;
        Ok(b.run(Matmul { epilogue, ..Matmul::new(&weights.output, &s.act, y) })?)
    }

    /// The output is output(c · convolution(b · x)).
    pub(super) fn convolution(
        &self,
        block: &MixerBlock,
        weights: &ConvolutionWeights<Weight, Buffer<f32>>,
        state: FixedLayer,
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b, n) = (self.tokens, self.backend, self.hidden);
        let rows = [&mut s.residual, &mut s.normed];
        self.input_matmul(&block.input, rows, &mut s.act, None, (&weights.input, None), s.qkv.view_mut(t, 3 * n)?)?;
        let input = s.qkv.view(t, 3 * n)?;
        let (of_input, of_output, x) = (input.columns(0..n)?, input.columns(n..2 * n)?, input.columns(2 * n..3 * n)?);
        b.run(Multiply { x, gate: of_input, kind: GateKind::Linear, out: s.mixed.view_mut(t, n)? })?;
        let taps = weights.convolution.len() / n;
        b.run(CausalConv {
            x: s.mixed.view(t, n)?,
            weight: &weights.convolution,
            bias: None,
            silu: false,
            state: state.convolution.view_mut(state.slots, (taps - 1) * n)?,
            runs: state.runs,
            out: s.attended.view_mut(t, n)?,
        })?;
        let (x, out) = (s.attended.view(t, n)?, s.mixed.view_mut(t, n)?);
        let multiply = Multiply { x, gate: of_output, kind: GateKind::Linear, out };
        b.name_readers(&mut s.act, &[Reader::dense(&weights.output, t)]);
        b.run(MultiplyAct { multiply, act: &mut s.act })?;
        let (epilogue, y) = self.output(block.post_norm.is_some(), &mut s.delta, &mut s.residual)?;
        Ok(b.run(Matmul { epilogue, ..Matmul::new(&weights.output, &s.act, y) })?)
    }
}

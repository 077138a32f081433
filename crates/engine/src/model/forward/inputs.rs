//! Inputs that each layer has of its own.

use gristmill_kernels::act::Reader;
use gristmill_kernels::ops::{Add, Embed, GateKind, Matmul, Multiply, MultiplyAct, PrepareActivations, QkNorm};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Weight;

use super::Step;
use super::norms::Ready;
use crate::error::Result;
use crate::model::scratch::Scratch;
use crate::model::weights::{LayerInputWeights, LayerInputsWeights};

impl Step<'_> {
    /// The inputs of all layers, from the scaled embeddings in `residual`: see
    /// [`layer_inputs`](crate::model::spec::ModelSpec::layer_inputs).
    pub(super) fn layer_inputs(
        &self,
        weights: &LayerInputsWeights<Weight, Buffer<f32>>,
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b, columns) = (self.tokens, self.backend, weights.projection.rows());
        b.run(PrepareActivations { x: s.residual.view(t, self.hidden)?, act: &mut s.act })?;
        b.run(Matmul::new(&weights.projection, &s.act, s.layer_inputs.view_mut(t, columns)?))?;
        // The norm of y / √hidden is that of y with an epsilon that is hidden times as large.
        let eps = self.spec.norm_eps * self.hidden as f32;
        b.run(QkNorm { x: s.layer_inputs.view_mut(t, columns)?, weight: &weights.norm, eps })?;
        let scale = (weights.norm.len() as f32 / 2.0).sqrt();
        let (rows, out) = (s.tokens.view(t, 1)?, s.inner.view_mut(t, columns)?);
        b.run(Embed { table: &weights.table, rows, scale, out })?;
        let (x, y) = (s.inner.view(t, columns)?, s.layer_inputs.view_mut(t, columns)?);
        Ok(b.run(Add { x, scale: 1.0, y })?)
    }

    /// residual = factor · (residual + norm(projection(gelu(gate · residual) · input of the layer))).
    pub(super) fn layer_input(
        &self,
        layer: usize,
        weights: &LayerInputWeights<Weight, Buffer<f32>>,
        factor: f32,
        ready: Ready,
        s: &mut Scratch,
    ) -> Result<()> {
        let (t, b, hidden, width) = (self.tokens, self.backend, self.hidden, weights.gate.rows());
        if ready == Ready::No {
            b.run(PrepareActivations { x: s.residual.view(t, hidden)?, act: &mut s.act })?;
        }
        b.run(Matmul::new(&weights.gate, &s.act, s.inner.view_mut(t, width)?))?;
        let inputs = s.layer_inputs.view(t, width * self.spec.layers.len())?;
        let (x, gate) = (inputs.columns(layer * width..(layer + 1) * width)?, s.inner.view(t, width)?);
        let multiply = Multiply { x, gate, kind: GateKind::Gelu, out: s.mixed.view_mut(t, width)? };
        b.name_readers(&mut s.act, &[Reader::dense(&weights.projection, t)]);
        b.run(MultiplyAct { multiply, act: &mut s.act })?;
        b.run(Matmul::new(&weights.projection, &s.act, s.delta.view_mut(t, hidden)?))?;
        self.post_norm(Some(&weights.post_norm), factor, None, s)?;
        Ok(())
    }
}

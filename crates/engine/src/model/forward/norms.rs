//! Norms of the residual stream, and of what is added to it.

use gristmill_kernels::act::Reader;
use gristmill_kernels::ops::{Add, AddNorm, AddNormAct, LayerNorm, NormAct, PrepareActivations, RmsNorm, Scale};
use gristmill_kernels::tensor::{Buffer, View, ViewMut};
use gristmill_kernels::weight::Weight;

use super::{MlpBlock, Step};
use crate::error::Result;
use crate::model::scratch::Scratch;
use crate::model::weights::{BlockInput, LayerInputWeights, MlpWeights, NormWeights};

/// The product that reads the residual stream next, as it is or through an RMS norm.
#[derive(Clone, Copy)]
pub(super) struct Next<'a> {
    norm: Option<&'a Buffer<f32>>,
    reader: &'a Weight,
}

impl<'a> Next<'a> {
    /// That of an MLP; a router's has its norm in its own launch.
    pub(super) fn of_mlp(block: &'a MlpBlock) -> Option<Self> {
        let MlpWeights::Dense { gate_up: reader, .. } = &block.weights else { return None };
        match &block.input {
            BlockInput::Norm(NormWeights::Rms { weight }) => Some(Self { norm: Some(weight), reader }),
            BlockInput::Residual => Some(Self { norm: None, reader }),
            BlockInput::Norm(NormWeights::Layer { .. }) | BlockInput::Mixer => None,
        }
    }

    /// That of a layer's own input.
    pub(super) fn of_layer_input(weights: &'a LayerInputWeights<Weight, Buffer<f32>>) -> Self {
        Self { norm: None, reader: &weights.gate }
    }
}

/// Whether `act` is the next block's input already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    No,
    Yes,
}

impl Step<'_> {
    /// act = norm(residual).
    pub(super) fn norm(&self, weights: &NormWeights<Buffer<f32>>, s: &mut Scratch) -> Result<()> {
        let (t, hidden, eps) = (self.tokens, self.hidden, self.spec.norm_eps);
        let (x, mut out, act) = (s.residual.view(t, hidden)?, s.normed.view_mut(t, hidden)?, &mut s.act);
        if let NormWeights::Rms { weight } = weights {
            return Ok(self.backend.run(NormAct { norm: RmsNorm { x, weight, eps, out }, acts: [Some(act), None] })?);
        }
        self.norm_rows(weights, x, out.reborrow())?;
        Ok(self.backend.run(PrepareActivations { x: out.as_view(), act })?)
    }

    pub(super) fn norm_rows(&self, weights: &NormWeights<Buffer<f32>>, x: View<f32>, out: ViewMut<f32>) -> Result<()> {
        let eps = self.spec.norm_eps;
        match weights {
            NormWeights::Rms { weight } => self.backend.run(RmsNorm { x, weight, eps, out })?,
            NormWeights::Layer { weight, bias } => self.backend.run(LayerNorm { x, weight, bias, eps, out })?,
        }
        Ok(())
    }

    /// With a post norm: residual = factor · (residual + scale · post_norm(delta)), else factor · residual. Says whether
    /// `act` is the input of the part that follows.
    pub(super) fn post_norm(
        &self,
        weights: Option<&NormWeights<Buffer<f32>>>,
        factor: f32,
        next: Option<Next>,
        s: &mut Scratch,
    ) -> Result<Ready> {
        let (b, t, hidden) = (self.backend, self.tokens, self.hidden);
        let (eps, scale) = (self.spec.norm_eps, self.spec.residual_scale);
        let mut y = s.residual.view_mut(t, hidden)?;
        let Some(weights) = weights else {
            self.multiply(factor, y)?;
            return Ok(Ready::No);
        };
        // The block has read its normed input: `normed` is free.
        let (x, mut out) = (s.delta.view(t, hidden)?, s.normed.view_mut(t, hidden)?);
        let NormWeights::Rms { weight } = weights else {
            self.norm_rows(weights, x, out.reborrow())?;
            b.run(Add { x: out.as_view(), scale, y: y.reborrow() })?;
            self.multiply(factor, y)?;
            return Ok(Ready::No);
        };
        let sum = AddNorm { norm: RmsNorm { x, weight, eps, out }, scale, factor, y };
        let Some(Next { norm, reader }) = next else {
            b.run(sum)?;
            return Ok(Ready::No);
        };
        b.name_readers(&mut s.act, &[Reader::dense(reader, t)]);
        b.run(AddNormAct { sum, next: norm.map(|weight| (weight, eps)), act: &mut s.act })?;
        Ok(Ready::Yes)
    }

    /// y = factor · y.
    pub(super) fn multiply(&self, factor: f32, y: ViewMut<f32>) -> Result<()> {
        if factor == 1.0 {
            return Ok(());
        }
        Ok(self.backend.run(Scale { factor, y })?)
    }
}

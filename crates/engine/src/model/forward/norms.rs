//! Norms of the residual stream, and of what is added to it.

use gristmill_kernels::ops::{Add, AddNorm, LayerNorm, NormAct, PrepareActivations, RmsNorm, Scale};
use gristmill_kernels::tensor::{Buffer, View, ViewMut};

use super::Step;
use crate::error::Result;
use crate::model::scratch::Scratch;
use crate::model::weights::NormWeights;

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

    /// With a post norm: residual = factor · (residual + scale · post_norm(delta)), else factor · residual.
    pub(super) fn post_norm(
        &self,
        weights: Option<&NormWeights<Buffer<f32>>>,
        factor: f32,
        s: &mut Scratch,
    ) -> Result<()> {
        let y = s.residual.view_mut(self.tokens, self.hidden)?;
        if weights.is_none() {
            return self.multiply(factor, y);
        }
        // The block has read its normed input: `normed` is free.
        let delta = s.delta.view(self.tokens, self.hidden)?;
        self.add_normed(weights, delta, [self.spec.residual_scale, factor], &mut s.normed, y)
    }

    /// y = factor · (y + scale · norm(x)), or factor · (y + scale · x) without a norm.
    pub(super) fn add_normed(
        &self,
        weights: Option<&NormWeights<Buffer<f32>>>,
        x: View<f32>,
        [scale, factor]: [f32; 2],
        normed: &mut Buffer<f32>,
        mut y: ViewMut<f32>,
    ) -> Result<()> {
        let (eps, mut normed) = (self.spec.norm_eps, normed.view_mut(self.tokens, self.hidden)?);
        let x = match weights {
            None => x,
            Some(NormWeights::Rms { weight }) => {
                let norm = RmsNorm { x, weight, eps, out: normed };
                return Ok(self.backend.run(AddNorm { norm, scale, factor, y })?);
            }
            Some(weights) => {
                self.norm_rows(weights, x, normed.reborrow())?;
                normed.as_view()
            }
        };
        self.backend.run(Add { x, scale, y: y.reborrow() })?;
        self.multiply(factor, y)
    }

    /// y = factor · y.
    pub(super) fn multiply(&self, factor: f32, y: ViewMut<f32>) -> Result<()> {
        if factor == 1.0 {
            return Ok(());
        }
        Ok(self.backend.run(Scale { factor, y })?)
    }
}

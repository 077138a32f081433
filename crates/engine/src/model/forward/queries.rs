//! Attention of a layer that has queries alone, and reads the keys and values of a layer before it.

use gristmill_kernels::act::Act;
use gristmill_kernels::kv::{KvCache, Placement};
use gristmill_kernels::ops::{Attention, AttentionAct, AttentionOptions, QkNorm, Rope, Rotary};
use gristmill_kernels::tensor::{Buffer, ViewMut};
use gristmill_kernels::weight::Weight;

use super::Step;
use crate::error::Result;
use crate::model::spec::AttentionSpec;
use crate::model::weights::AttentionWeights;

impl Step<'_> {
    /// Normalises and rotates queries; their attention over a cache that has the keys and values of all positions.
    pub(super) fn attend_queries(
        &self,
        weights: &AttentionWeights<Weight, Buffer<f32>>,
        spec: &AttentionSpec,
        mut q: ViewMut<f32>,
        rotary: &Rotary,
        (cache, placement): (&KvCache, &Placement),
        options: AttentionOptions,
        out: ViewMut<f32>,
        act: &mut Act,
    ) -> Result<()> {
        let (b, eps, head_width) = (self.backend, self.spec.norm_eps, spec.key_width);
        let norm = |q: ViewMut<f32>, after_rope: bool| match &weights.q_norm {
            Some(weight) if spec.norm_after_rope == after_rope => b.run(QkNorm { x: q, weight, eps }),
            _ => Ok(()),
        };
        norm(q.reborrow(), false)?;
        let positions = placement.positions.view(self.tokens, 1)?;
        b.run(Rope { x: q.reborrow(), head_width, positions, rotary })?;
        norm(q.reborrow(), true)?;
        Ok(b.run(AttentionAct { attention: Attention { q: q.as_view(), cache, placement, options, out }, act })?)
    }
}

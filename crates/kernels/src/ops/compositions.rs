//! What each composition consists of: its parts, which run if a backend does not fuse it.

use super::attention::{
    Attend, Attention, AttentionAct, KvWrite, LatentWrite, QkNorms, QkvWrite, key_and_value_columns,
};
use super::elementwise::{Add, CopyRows, Rope, Scale};
use super::experts::{ExpertScratch, ExpertWeights, Experts, MoeCombine, MoeGateUp, MoeGateUpAct, MoeMatmul};
use super::kernels::{Compose, Parts};
use super::matrix::{Epilogue, GateUpAct, Matmul, PrepareActivations};
use super::norm::{AddNorm, AddNormAct, AddNorms, NormAct, NormMatmul, QkNorm, RmsNorm};
use super::recurrent::{Multiply, MultiplyAct};
use super::route::{GroupByExpert, RouteAndGroup};
use crate::error::Result;
use crate::tensor::ViewMut;

impl Compose for AttentionAct<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let of_token = self.parts();
        let Self { mut attention, act, .. } = self;
        parts.run(attention.reborrow())?;
        parts.run(PrepareActivations { x: attention.out.as_view().split(of_token)?, act })
    }
}

impl Compose for QkvWrite<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { mut qkv, heads, norms, rotary, cache, placement } = self;
        let tokens = qkv.rows();
        let all = qkv.cols();
        let [k, v] = key_and_value_columns(heads, cache.spec())?;
        if tokens == 0 {
            return Ok(());
        }
        let normalise = |mut qkv: ViewMut<f32>, after_rotation| match norms {
            Some(QkNorms { weights: [q_norm, k_norm], eps, after_rotation: after, .. }) if after == after_rotation => {
                parts.run(QkNorm { x: qkv.reborrow().columns(0..k)?, weight: q_norm, eps })?;
                parts.run(QkNorm { x: qkv.columns(k..v)?, weight: k_norm, eps })
            }
            _ => Ok(()),
        };
        normalise(qkv.reborrow(), false)?;
        // Queries and keys are adjacent and have the same head width, so one rotation covers both.
        let x = qkv.reborrow().columns(0..v)?;
        let positions = placement.positions.view(tokens, 1)?;
        parts.run(Rope { x, head_width: cache.spec().key_width, first: 0, positions, rotary })?;
        normalise(qkv.reborrow(), true)?;
        if let Some(QkNorms { values: Some(weight), eps, .. }) = norms {
            parts.run(QkNorm { x: qkv.reborrow().columns(v..all)?, weight, eps })?;
        }
        let qkv = qkv.as_view();
        parts.run(KvWrite { cache, k: qkv.columns(k..v)?, v: Some(qkv.columns(v..all)?), placement })
    }
}

impl Compose for Attend<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { mut qkv, norms, rotary, cache, placement, options, out, act } = self;
        let heads = options.heads;
        let [queries, _] = key_and_value_columns(heads, cache.spec())?;
        parts.run(QkvWrite { qkv: qkv.reborrow(), heads, norms, rotary, cache: &mut *cache, placement })?;
        if qkv.rows() == 0 {
            return Ok(());
        }
        let q = qkv.as_view().columns(0..queries)?;
        parts.run(AttentionAct { attention: Attention { q, cache, placement, options, out }, act, by_head: false })
    }
}

impl Compose for LatentWrite<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let [width, of_rotated] = self.widths()?;
        let Self { mut rows, mut queries, heads, norm, eps, rotary, cache, placement, plain, rotated } = self;
        let (tokens, row, latent) = (rows.rows(), rows.cols(), norm.len());
        if tokens == 0 {
            return Ok(());
        }
        parts.run(QkNorm { x: rows.reborrow().columns(0..latent)?, weight: norm, eps })?;
        if let Some(rotary) = rotary {
            let positions = placement.positions.view(tokens, 1)?;
            let x = rows.reborrow().columns(latent..row)?;
            parts.run(Rope { x, head_width: of_rotated, first: 0, positions, rotary })?;
            let head_width = width + of_rotated;
            parts.run(Rope { x: queries.reborrow(), head_width, first: width, positions, rotary })?;
        }
        parts.run(KvWrite { cache, k: rows.as_view(), v: None, placement })?;
        let queries = queries.as_view().split(heads)?;
        parts.run(PrepareActivations { x: queries.columns(0..width)?, act: plain })?;
        parts.run(CopyRows { x: queries.columns(width..width + of_rotated)?, out: rotated })
    }
}

impl Compose for MoeGateUpAct<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { mut gate_up, act } = self;
        parts.run(gate_up.reborrow())?;
        parts.run(PrepareActivations { x: gate_up.h.as_view(), act })
    }
}

impl Compose for Experts<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { mut route, x, .. } = self;
        let ExpertWeights { gate_up, down, activation, gate_up_bias, down_bias } = self.weights;
        let ExpertScratch { groups, mut h, act, mut out } = self.scratch;
        let top_k = route.routing.top_k;
        parts.run(RouteAndGroup { route: route.reborrow(), groups: &mut *groups })?;
        parts.request_experts([gate_up, down], groups)?;
        let h = h.reborrow();
        let gate_up = MoeGateUp { weight: gate_up, x, groups, top_k, bias: gate_up_bias, activation, h };
        parts.run(MoeGateUpAct { gate_up, act: &mut *act })?;
        parts.run(MoeMatmul { weight: down, x: act, groups, top_k, bias: down_bias, out: out.reborrow() })?;
        parts.run(MoeCombine {
            out: out.as_view(),
            weights: route.weights.as_view(),
            epilogue: self.epilogue,
            y: self.y,
        })
    }
}

impl Compose for GateUpAct<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { mut gate_up, act } = self;
        parts.run(gate_up.reborrow())?;
        parts.run(PrepareActivations { x: gate_up.h.as_view(), act })
    }
}

impl Compose for NormAct<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { mut norm, acts } = self;
        parts.run(norm.reborrow())?;
        let mut acts = acts.into_iter().flatten();
        acts.try_for_each(|act| parts.run(PrepareActivations { x: norm.out.as_view(), act }))
    }
}

impl Compose for AddNorm<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { mut norm, scale, factor, mut y } = self;
        parts.run(norm.reborrow())?;
        parts.run(Add { x: norm.out.as_view(), scale, y: y.reborrow() })?;
        if factor == 1.0 {
            return Ok(());
        }
        parts.run(Scale { factor, y })
    }
}

impl Compose for AddNormAct<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { sum: AddNorm { mut norm, scale, factor, mut y }, next, act } = self;
        parts.run(AddNorm { norm: norm.reborrow(), scale, factor, y: y.reborrow() })?;
        let x = y.as_view();
        match next {
            Some((weight, eps)) => {
                let norm = RmsNorm { x, weight, eps, out: norm.out };
                parts.run(NormAct { norm, acts: [Some(act), None] })
            }
            None => parts.run(PrepareActivations { x, act }),
        }
    }
}

impl Compose for AddNorms<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { norms: [mut first, mut second], weight, eps, scale, factor, y } = self;
        parts.run(first.reborrow())?;
        let mut sum = first.out;
        parts.run(AddNorm { norm: second.reborrow(), scale: 1.0, factor: 1.0, y: sum.reborrow() })?;
        let norm = RmsNorm { x: sum.as_view(), weight, eps, out: second.out };
        parts.run(AddNorm { norm, scale, factor, y })
    }
}

impl Compose for NormMatmul<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { norm, act, other, weight, bias, y } = self;
        parts.run(NormAct { norm, acts: [Some(&mut *act), other] })?;
        parts.run(Matmul { weight, x: act, rows: None, bias, epilogue: Epilogue::Store, y })
    }
}

impl Compose for MultiplyAct<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { multiply: Multiply { x, gate, kind, mut out }, act } = self;
        parts.run(Multiply { x, gate, kind, out: out.reborrow() })?;
        parts.run(PrepareActivations { x: out.as_view(), act })
    }
}

impl Compose for RouteAndGroup<'_> {
    fn compose(self, parts: &Parts) -> Result<()> {
        let Self { mut route, groups } = self;
        parts.run(route.reborrow())?;
        parts.run(GroupByExpert { ids: route.ids.as_view(), groups })
    }
}

//! Compositions that some backends do at once, part by part: the bodies of [`Backend`]'s methods of the same names, and what
//! an override falls back to.

use crate::act::Act;
use crate::check::elements;
use crate::error::Result;
use crate::kv::{KvCache, KvSpec, Placement};
use crate::ops::{Attention, Backend, Norm, Norms, Rope};
use crate::tensor::{Buffer, ViewMut};
use crate::weight::Weight;

pub(crate) fn norm_act<B: Backend + ?Sized>(
    b: &B,
    norm: Norm,
    mut normed: ViewMut<f32>,
    acts: &mut [&mut Act],
) -> Result<()> {
    b.rms_norm(norm.x, norm.weight, norm.eps, normed.reborrow())?;
    acts.iter_mut().try_for_each(|act| b.prepare_activations(normed.as_view(), act))
}

pub(crate) fn norm_matmul<B: Backend + ?Sized>(
    b: &B,
    norm: Norm,
    normed: ViewMut<f32>,
    act: &mut Act,
    other: Option<&mut Act>,
    w: &Weight,
    bias: Option<&Buffer<f32>>,
    y: ViewMut<f32>,
) -> Result<()> {
    match other {
        Some(other) => b.norm_act(norm, normed, &mut [act, other])?,
        None => b.norm_act(norm, normed, &mut [act])?,
    }
    b.matmul(w, act, bias, y)
}

/// Where keys and values begin beside queries.
pub(crate) fn key_and_value_columns(heads: usize, spec: KvSpec) -> Result<[usize; 2]> {
    let keys = elements("queries", &[heads, spec.key_width])?;
    Ok([keys, elements("keys", &[heads.saturating_add(spec.heads), spec.key_width])?])
}

pub(crate) fn place_qkv<B: Backend + ?Sized>(
    b: &B,
    mut qkv: ViewMut<f32>,
    heads: usize,
    norms: Norms,
    rope: &Rope,
    cache: &mut KvCache,
    place: &Placement,
) -> Result<()> {
    let (tokens, all, [k, v]) = (qkv.rows(), qkv.cols(), key_and_value_columns(heads, cache.spec())?);
    if let Some(([q_norm, k_norm], eps)) = norms {
        b.qk_norm(qkv.reborrow().columns(0..k)?, q_norm, eps)?;
        b.qk_norm(qkv.reborrow().columns(k..v)?, k_norm, eps)?;
    }
    // Queries and keys are neighbours and have the same width: one rotation serves both.
    b.rope(qkv.reborrow().columns(0..v)?, cache.spec().key_width, place.positions.view(tokens, 1)?, rope)?;
    let qkv = qkv.as_view();
    b.kv_write(cache, qkv.columns(k..v)?, qkv.columns(v..all)?, place)
}

pub(crate) fn attend<B: Backend + ?Sized>(
    b: &B,
    mut qkv: ViewMut<f32>,
    norms: Norms,
    rope: &Rope,
    cache: &mut KvCache,
    place: &Placement,
    parameters: &Attention,
    out: ViewMut<f32>,
    act: &mut Act,
) -> Result<()> {
    let [queries, _] = key_and_value_columns(parameters.heads, cache.spec())?;
    b.place_qkv(qkv.reborrow(), parameters.heads, norms, rope, cache, place)?;
    b.attention_act(qkv.as_view().columns(0..queries)?, cache, place, parameters, out, act)
}

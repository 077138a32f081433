//! `phimoe`: Phi-3.5-MoE. Layer norms with biases, LongRoPE, and experts routed by SparseMixer.
//!
//! The maths is that of transformers. llama.cpp uses RMSNorm instead of a layer norm, and softmax weights for experts.

use gristmill_kernels::ops::{Gating, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{MlpSpec, ModelSpec, MoeSpec, NormKind};

/// Twice the `router_jitter_noise` of Phi-3.5-MoE; there is no key for it.
const NEAR: f32 = 0.02;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let mut mlp = file.moe(false, None)?;
    if let MlpSpec::Moe(MoeSpec { routing, .. }) = &mut mlp {
        routing.gating = Gating::SparseMixer { near: NEAR };
    }
    Ok(ModelSpec { norm: NormKind::Layer, ..file.uniform(file.attention(RopeStyle::Halves)?, mlp)? })
}

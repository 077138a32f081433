//! `gpt-oss`: every second layer, starting with the first, has a sliding window. Heads have sinks. All matrices have
//! biases. The experts' activation is clamped, and expert weights are the softmax of the chosen logits.
//!
//! YaRN's ramp is not rounded to whole pairs (`truncate: false`), as in transformers; llama.cpp rounds it.

use gristmill_kernels::ops::{Activation, Gating, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, LayerSpec, Mixer, MlpSpec, ModelSpec, MoeSpec, RopeScaling, RopeSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = file.attention(RopeStyle::Halves)?;
    let mut attention = AttentionSpec { sinks: true, qkv_bias: true, output_bias: true, ..attention };
    if let Some(RopeSpec { scaling: RopeScaling::Yarn { truncate, .. }, .. }) = &mut attention.rope {
        *truncate = false;
    }
    let mut mlp = file.moe(false, None)?;
    if let MlpSpec::Moe(MoeSpec { activation, routing, bias, .. }) = &mut mlp {
        *activation = Activation::ClampedSwiGlu { alpha: 1.702, limit: 7.0 };
        *bias = true;
        routing.gating = file.gating(Gating::SoftmaxOfChosen)?;
    }
    let layer = |windowed: bool| {
        let attention = AttentionSpec { window: attention.window.filter(|_| windowed), ..attention.clone() };
        LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp.clone()) }
    };
    let layers = file.windowed(2)?.into_iter().map(layer).collect();
    Ok(ModelSpec { mlp_norm: "post_attention_norm", ..file.model(layers)? })
}

//! `cohere2`: Command R7B and Command A. Attention and MLP run in parallel: both read the output of one layer norm
//! without bias and add to the residual stream. Of four layers, three have a sliding window, and the fourth has no
//! RoPE.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, BlockInputs, LayerSpec, Mixer, ModelSpec, NormKind};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let windowed = file.attention(RopeStyle::Interleaved)?;
    let full = AttentionSpec { window: None, rope: None, ..windowed.clone() };
    let mlp = file.dense(Activation::SwiGlu)?;
    let layer = |has_window| {
        let attention = if has_window { &windowed } else { &full };
        LayerSpec { mixer: Mixer::Attention(attention.clone()), mlp: Some(mlp.clone()) }
    };
    let layers = file.windowed(4)?.into_iter().map(layer).collect();
    let model = file.model_with_epsilon("attention.layer_norm_epsilon", layers)?;
    let logit_scale = file.factor("logit_scale")?;
    Ok(ModelSpec { norm: NormKind::LayerUnbiased, inputs: BlockInputs::Shared, logit_scale, ..model })
}

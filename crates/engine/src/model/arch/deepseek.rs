//! `deepseek`: the first DeepSeek MoE. The first layers are dense, the others have shared and chosen experts: softmax
//! over all, the top k not renormalised. Attention is that of `llama`.

use gristmill_kernels::ops::{Activation, RopeStyle};

use super::read::Reader;
use crate::error::Result;
use crate::model::spec::{LayerSpec, Mixer, ModelSpec};

pub(super) fn spec(file: &Reader) -> Result<ModelSpec> {
    let mixer = Mixer::Attention(file.attention(RopeStyle::Interleaved)?);
    let (dense, moe) = (file.dense(Activation::SwiGlu)?, file.moe(false, file.shared_experts()?)?);
    let first = file.count_or_zero("leading_dense_block_count")?;
    let mlps = (0..file.layers()?).map(|layer| if layer < first { dense.clone() } else { moe.clone() });
    file.model(mlps.map(|mlp| LayerSpec { mixer: mixer.clone(), mlp: Some(mlp) }).collect())
}

//! `mimo2`: MiMo V2-Flash and V2.5. Keys are wider than values, and a part of each head is rotated. Layers with a window
//! have other numbers of KV heads, another base of RoPE, and sinks. Values have a scale. The first layer is dense. The
//! others have experts, routed by sigmoid with a selection bias.
//!
//! Each prediction head reads the residual stream of the model, as in SGLang, whose first implementation the authors helped
//! to write. llama.cpp chains the heads; vLLM reads the hidden states after the last norm.
//!
//! A window of n positions includes the token's own, as in the authors' code and in llama.cpp; transformers adds 1 to the
//! published number.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, HeadInputs, LayerSpec, Mixer, MlpSpec, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let (windowed, heads, kv_heads) = (file.windowed_by_flags()?, file.heads()?, file.kv_heads()?);
    let mlps = file.mlps_by_router(&file.dense(Activation::SwiGlu)?, &file.sigmoid_moe(true, None)?)?;
    let value_scale = file.factor("attention.value_scale")?;
    let layer = |(layer, mlp): (usize, MlpSpec)| {
        let attention = AttentionSpec {
            sinks: file.tensor(&format!("blk.{layer}.attn_sinks.weight")),
            value_scale,
            ..file.attention_of_heads(RopeStyle::Halves, [heads[layer], kv_heads[layer]], windowed[layer])?
        };
        Ok(LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp) })
    };
    let spec = file.model(mlps.into_iter().enumerate().map(layer).collect::<Result<_>>()?)?;
    Ok(ModelSpec { head_inputs: HeadInputs { normed: false, chained: false }, ..spec })
}

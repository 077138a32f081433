//! `llama4`: Llama 4, the text model. In three of four layers a token sees its own chunk; the fourth layer has no RoPE
//! and has a query temperature. Only Scout normalises queries and keys, after RoPE. Layers with experts choose one
//! expert and scale its input.

use gristmill_kernels::ops::{Activation, RopeStyle, Temperature};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, LayerSpec, Mixer, ModelSpec, QkNorm};

/// Chunk length, also the step length of the temperature. Published files have no key for it.
const CHUNK: u32 = 8192;
/// Number of experts of Maverick, which has no norms of queries and keys. Only this number identifies Maverick.
const MAVERICK: usize = 128;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let normed = file.count_or_zero("expert_count")? != MAVERICK;
    let chunked = AttentionSpec {
        window: Some(file.chunks(CHUNK as usize)?),
        qk_norm: normed.then_some(QkNorm::PerHeadUnweighted),
        norm_after_rope: true,
        ..file.attention(RopeStyle::Interleaved)?
    };
    let temperature = file.temperature_or(Temperature { scale: 0.1, length: CHUNK, offset: 1 })?;
    let temperature = Some(temperature);
    let full = AttentionSpec { window: None, rope: None, qk_norm: None, temperature, ..chunked.clone() };
    let mlps = file.dense_mlps_first(&file.dense(Activation::SwiGlu)?, &file.input_weighed_moe()?)?;
    let layer = |(in_chunks, mlp)| {
        let attention = if in_chunks { &chunked } else { &full };
        LayerSpec { mixer: Mixer::Attention(attention.clone()), mlp: Some(mlp) }
    };
    file.model(file.window_pattern(4)?.into_iter().zip(mlps).map(layer).collect())
}

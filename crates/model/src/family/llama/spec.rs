//! `llama`: Llama 1 to 3, Mistral and Mixtral, SmolLM2, and the many models with the same architecture.
//!
//! The converter permutes the rows of Q and K so that RoPE pairs are interleaved. Llama 3's RoPE scaling is the tensor
//! `rope_freqs.weight`.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = file.attention(RopeStyle::Interleaved)?;
    let mlp = if file.has("expert_count")? { file.moe(true, None)? } else { file.dense(Activation::SwiGlu)? };
    file.uniform(attention, mlp)
}

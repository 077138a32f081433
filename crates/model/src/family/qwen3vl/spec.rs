//! `qwen3vl` and `qwen3vlmoe`: Qwen3-VL, the text model, dense or with experts. As `qwen3` and `qwen3moe` with
//! multimodal RoPE: each pair uses one of three positions, which are equal for text.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let picture_layers = file.count_or_zero("n_deepstack_layers")?;
    let attention = file.attention_in(RopeStyle::Halves, Sections::Interleaved)?;
    let attention = AttentionSpec { qk_norm: Some(QkNorm::PerHead), ..attention };
    let mlp = if file.has("expert_count")? { file.moe(true, None)? } else { file.dense(Activation::SwiGlu)? };
    Ok(ModelSpec { picture_layers, ..file.uniform(attention, mlp)? })
}

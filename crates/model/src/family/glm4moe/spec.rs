//! `glm4moe`: GLM-4.5 to 4.7, and the text model of GLM-4.5V and 4.6V. The first layers are dense. The others have a shared expert, and experts routed by
//! sigmoid with a selection bias. RoPE rotates half of each head. The larger models normalise queries and keys.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let qk_norm = file.tensor("blk.0.attn_q_norm.weight").then_some(QkNorm::PerHead);
    let attention = AttentionSpec { qk_norm, ..file.attention_in(RopeStyle::Halves, file.sections_if_set()?)? };
    let moe = file.sigmoid_moe(true, file.shared_experts()?)?;
    let layers = file.dense_first(attention, file.dense(Activation::SwiGlu)?, moe)?;
    Ok(ModelSpec { mlp_norm: "post_attention_norm", ..file.model(layers)? })
}

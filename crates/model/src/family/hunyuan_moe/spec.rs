//! `hunyuan-moe`: Hunyuan A13B. Every layer has a shared expert, and experts routed by softmax over all experts with
//! the top k renormalised. Queries and keys are normalised per head after RoPE.

use gristmill_kernels::ops::RopeStyle;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = file.attention(RopeStyle::Halves)?;
    let attention = AttentionSpec { qk_norm: Some(QkNorm::PerHead), norm_after_rope: true, ..attention };
    file.uniform(attention, file.moe(true, file.shared_experts()?)?)
}

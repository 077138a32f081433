//! `hunyuan-moe`: Hunyuan A13B. Every layer has a shared expert and experts chosen by softmax over all, the top k
//! renormalised; queries and keys are normalised per head after their rotation.

use gristmill_kernels::ops::RopeStyle;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = file.attention(RopeStyle::Halves)?;
    let attention = AttentionSpec { qk_norm: Some(QkNorm::PerHead), norm_after_rope: true, ..attention };
    file.uniform(attention, file.moe(true, file.shared_experts()?)?)
}

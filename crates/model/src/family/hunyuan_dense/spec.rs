//! `hunyuan-dense`: dense Hunyuan. Queries and keys are normalised per head after RoPE.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = file.attention(RopeStyle::Halves)?;
    let attention = AttentionSpec { qk_norm: Some(QkNorm::PerHead), norm_after_rope: true, ..attention };
    file.uniform(attention, file.dense(Activation::SwiGlu)?)
}

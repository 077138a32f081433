//! `qwen3`: dense Qwen 3. Queries and keys are normalised per head.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.uniform(attention(file)?, file.dense(Activation::SwiGlu)?)
}

/// Attention of the Qwen 3 family.
pub(crate) fn attention(file: &KeyReader) -> Result<AttentionSpec> {
    Ok(AttentionSpec { qk_norm: Some(QkNorm::PerHead), ..file.attention(RopeStyle::Halves)? })
}

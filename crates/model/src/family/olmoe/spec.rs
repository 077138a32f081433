//! `olmoe`: OLMoE. Queries and keys are normalised as whole rows; softmax over all experts, the top k not renormalised.

use gristmill_kernels::ops::RopeStyle;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.refuse("attention.clamp_kqv", "queries, keys and values that are not clamped")?;
    let attention = AttentionSpec { qk_norm: Some(QkNorm::WholeRow), ..file.attention(RopeStyle::Halves)? };
    file.uniform(attention, file.moe(false, None)?)
}

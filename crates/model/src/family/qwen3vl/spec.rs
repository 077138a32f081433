//! `qwen3vl` and `qwen3vlmoe`: Qwen3-VL as text, dense or with experts. As `qwen3` and `qwen3moe`; each pair of a head
//! turns by one of three positions, which for a text are the same.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    // Only images have rows for several layers.
    file.count_or_zero("n_deepstack_layers")?;
    let attention = file.attention_in(RopeStyle::Halves, Sections::Three)?;
    let attention = AttentionSpec { qk_norm: Some(QkNorm::PerHead), ..attention };
    let mlp = if file.has("expert_count")? { file.moe(true, None)? } else { file.dense(Activation::SwiGlu)? };
    file.uniform(attention, mlp)
}

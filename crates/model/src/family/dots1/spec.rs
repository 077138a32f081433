//! `dots1`: dots.llm1. Attention is that of `qwen3`. The first layers are dense. The others have shared experts, and
//! experts routed by sigmoid with a selection bias. If the file has neither a bias nor a gating function, routing is by
//! softmax.

use gristmill_kernels::ops::Activation;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let (attention, shared) = (crate::family::qwen3::spec::attention(file)?, file.shared_experts()?);
    let moe = if file.has_selection_bias()? { file.sigmoid_moe(false, shared)? } else { file.moe(false, shared)? };
    file.model(file.dense_first(attention, file.dense(Activation::SwiGlu)?, moe)?)
}

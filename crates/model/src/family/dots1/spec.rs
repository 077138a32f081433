//! `dots1`: dots.llm1. Attention is that of `qwen3`. The first layers are dense, the others have experts that serve
//! every token and experts chosen by sigmoid with a bias, or by softmax where the file has no bias and no gating
//! function.

use gristmill_kernels::ops::Activation;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let (attention, shared) = (crate::family::qwen3::spec::attention(file)?, file.shared_experts()?);
    let moe = if file.has_selection_bias()? { file.sigmoid_moe(false, shared)? } else { file.moe(false, shared)? };
    file.model(file.dense_first(attention, file.dense(Activation::SwiGlu)?, moe)?)
}

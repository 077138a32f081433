//! `deepseek`: the first DeepSeek MoE. The first layers are dense, the others have shared and routed experts: softmax
//! over all experts, the top k not renormalised. Attention is that of `llama`.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let moe = file.moe(false, file.shared_experts()?)?;
    file.model(file.dense_first(file.attention(RopeStyle::Interleaved)?, file.dense(Activation::SwiGlu)?, moe)?)
}

//! `qwen2moe`: Qwen 1.5 and 2 with experts: softmax over all experts, the top k not renormalised, and a gated shared
//! expert.

use gristmill_kernels::ops::RopeStyle;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let mlp = file.moe(false, Some(file.gated_shared_expert()?))?;
    file.uniform(file.attention(RopeStyle::Halves)?, mlp)
}

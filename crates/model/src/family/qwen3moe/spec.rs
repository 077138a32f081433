//! `qwen3moe`: Qwen 3 with experts in every layer: softmax over all experts, the top k renormalised.

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.uniform(crate::family::qwen3::spec::attention(file)?, file.moe(true, None)?)
}

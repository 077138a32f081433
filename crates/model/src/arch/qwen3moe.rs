//! `qwen3moe`: Qwen 3 with experts in every layer: softmax over all, the top k renormalised.

use super::read::Reader;
use crate::error::Result;
use crate::spec::ModelSpec;

pub(super) fn spec(file: &Reader) -> Result<ModelSpec> {
    file.uniform(super::qwen3::attention(file)?, file.moe(true, None)?)
}

//! `qwen2`: dense Qwen 2 and 2.5. Queries, keys and values have biases.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.uniform(file.attention(RopeStyle::Halves)?, file.dense(Activation::SwiGlu)?)
}

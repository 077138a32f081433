//! `phi3`: Phi-3, Phi-3.5-mini, Phi-4 and Phi-4-mini. As `llama`, with pairs of halves, LongRoPE in the models with
//! long contexts, and fused tensors: queries, keys and values are one, gate and up another.
//!
//! The maths is that of transformers, where every layer has the window of the file; llama.cpp has none.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.uniform(file.attention(RopeStyle::Halves)?, file.dense(Activation::SwiGlu)?)
}

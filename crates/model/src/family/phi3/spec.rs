//! `phi3`: Phi-3, Phi-3.5-mini, Phi-4 and Phi-4-mini. As `llama`, with RoPE pairs split across the halves of a head,
//! and LongRoPE in the models with long contexts. Tensors are fused: queries, keys and values; gate and up.
//!
//! The maths is that of transformers, where every layer has the file's sliding window; llama.cpp has none.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.uniform(file.attention(RopeStyle::Halves)?, file.dense(Activation::SwiGlu)?)
}

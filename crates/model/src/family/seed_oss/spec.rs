//! `seed_oss`: Seed-OSS. As `llama`, with biases of queries, keys and values. RoPE pairs are split across the halves of
//! a head.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let model = file.uniform(file.attention(RopeStyle::Halves)?, file.dense(Activation::SwiGlu)?)?;
    Ok(ModelSpec { mlp_norm: "post_attention_norm", ..model })
}

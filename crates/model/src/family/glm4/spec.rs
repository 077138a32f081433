//! `glm4`: GLM-4-0414, dense. Norms before and after each block. RoPE rotates interleaved pairs in a part of each head.
//! Gate and up are one tensor.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let model = file.uniform(file.attention(RopeStyle::Interleaved)?, file.dense(Activation::SwiGlu)?)?;
    Ok(ModelSpec { post_norms: true, ..model })
}

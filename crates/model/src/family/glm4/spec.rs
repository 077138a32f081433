//! `glm4`: GLM-4-0414, dense, and the text model of GLM-4.1V and 4.6V Flash. Norms before and after each block. RoPE rotates a
//! part of each head: interleaved pairs, or with multimodal RoPE pairs of halves. Gate and up are one tensor.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let sections = file.sections_if_set()?;
    let style = if sections == Sections::None { RopeStyle::Interleaved } else { RopeStyle::Halves };
    let model = file.uniform(file.attention_in(style, sections)?, file.dense(Activation::SwiGlu)?)?;
    Ok(ModelSpec { post_norms: true, ..model })
}

//! `exaone`: EXAONE 3 and 3.5. As `llama`; RoPE pairs are split across the two halves of a head.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.uniform(file.attention(RopeStyle::Halves)?, file.dense(Activation::SwiGlu)?)
}

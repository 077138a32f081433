//! `ernie4_5`: dense ERNIE 4.5. RoPE pairs are interleaved.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.uniform(file.attention(RopeStyle::Interleaved)?, file.dense(Activation::SwiGlu)?)
}

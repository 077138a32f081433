//! `qwen2vl`: Qwen2-VL and Qwen2.5-VL as text. As `qwen2`; each pair of a head turns by one of three positions, which for
//! a text are the same.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.uniform(file.attention_in(RopeStyle::Halves, Sections::Three)?, file.dense(Activation::SwiGlu)?)
}

//! `qwen2vl`: Qwen2-VL and Qwen2.5-VL, the text model. As `qwen2` with multimodal RoPE: each pair uses one of three
//! positions, which are equal for text.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.uniform(file.attention_in(RopeStyle::Halves, Sections::Runs)?, file.dense(Activation::SwiGlu)?)
}

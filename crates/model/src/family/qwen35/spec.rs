//! `qwen35` and `qwen35moe`: Qwen 3.5 and 3.6, the text model, dense or with experts. As `qwen3next`, with value heads
//! interleaved over the key heads, separate projections, and multimodal RoPE. Its three positions are equal for text.

use gristmill_kernels::ops::{Activation, HeadMap};

use crate::error::Result;
use crate::family::qwen3next::spec::model;
use crate::family::read::{KeyReader, Sections};
use crate::spec::{DeltaProjections, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let delta = file.delta(HeadMap::Tiled, DeltaProjections::Apart)?;
    let mlp = match file.has("expert_count")? {
        true => file.moe(true, Some(file.gated_shared_expert()?))?,
        false => file.dense(Activation::SwiGlu)?,
    };
    model(file, delta, Sections::Interleaved, mlp)
}

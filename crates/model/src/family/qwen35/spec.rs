//! `qwen35` and `qwen35moe`: Qwen 3.5 and 3.6, the text model, dense or with experts. As `qwen3next`, with value heads
//! that go round the key heads, separate projections, and RoPE of three positions, which for a text are the same.

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
    model(file, delta, Sections::Three, mlp)
}

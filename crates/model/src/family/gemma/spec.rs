//! `gemma`: Gemma 1 and CodeGemma. As `llama` with scaled embeddings and GeGLU.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let model = file.uniform(file.attention(RopeStyle::Halves)?, file.dense(Activation::GeGlu)?)?;
    Ok(ModelSpec { embedding_scale: (file.hidden()? as f32).sqrt(), ..model })
}

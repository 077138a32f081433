//! `minicpm`: MiniCPM 1, 2 and 4. As `llama`, with factors for embeddings and residuals, and a divisor for logits.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

/// Factors of the models; the first files lack the keys. Logits are divided by hidden / 256.
const EMBEDDING_SCALE: f32 = 12.0;
const DEPTH_SCALE: f32 = 1.4;
const BASE_WIDTH: f32 = 256.0;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.refuse_count("expert_count", "0: experts of MiniCPM are not implemented")?;
    let usual = DEPTH_SCALE / (file.layers()? as f32).sqrt();
    let logit_scale = match file.number_or_zero("logit_scale")? {
        Some(_) => file.divisor("logit_scale")?,
        None => BASE_WIDTH / file.hidden()? as f32,
    };
    Ok(ModelSpec {
        embedding_scale: file.number_or_zero("embedding_scale")?.unwrap_or(EMBEDDING_SCALE),
        residual_scale: file.number_or_zero("residual_scale")?.unwrap_or(usual),
        logit_scale,
        ..file.uniform(file.attention(RopeStyle::Interleaved)?, file.dense(Activation::SwiGlu)?)?
    })
}

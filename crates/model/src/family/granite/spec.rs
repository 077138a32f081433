//! `granite` and `granitemoe`: Granite 3, dense or with experts, with or without a shared expert. As `llama`, with
//! factors for embeddings, attention logits and residuals, and a divisor for logits.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.insist("rope.scaling.finetuned", "true (positions by RoPE)")?;
    let mlp = match file.has("expert_count")? {
        true => file.moe(true, file.shared_experts()?)?,
        false => file.dense(Activation::SwiGlu)?,
    };
    Ok(ModelSpec {
        embedding_scale: file.factor("embedding_scale")?,
        residual_scale: file.factor("residual_scale")?,
        logit_scale: file.divisor("logit_scale")?,
        ..file.uniform(file.attention(RopeStyle::Interleaved)?, mlp)?
    })
}

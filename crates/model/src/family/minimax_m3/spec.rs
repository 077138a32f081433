//! `minimax-m3`: MiniMax M3, up to the context in which its index chooses all blocks of tokens. Queries and keys are
//! normalised per head, and RoPE rotates a part of each. The first layers are dense. The others have a shared expert, and
//! experts routed by sigmoid with a selection bias. All activations are clamped, with the same numbers in every model.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

const CLAMPED: Activation = Activation::ClampedSwiGlu { alpha: 1.702, limit: 7.0 };

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = AttentionSpec { qk_norm: Some(QkNorm::PerHead), ..file.attention(RopeStyle::Halves)? };
    let moe = file.sigmoid_moe(true, file.shared_experts()?)?.with_activations([CLAMPED; 2]);
    let layers = file.dense_first(attention, file.dense(CLAMPED)?.with_activations([CLAMPED; 2]), moe)?;
    Ok(ModelSpec { unindexed_context: Some(file.unindexed_context()?), ..file.model(layers)? })
}

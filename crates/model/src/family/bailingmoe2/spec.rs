//! `bailingmoe2`: Ling 2 and Ring 2. Queries and keys are normalised per head, and RoPE rotates a part of each head.
//! The first layers are dense. The others have a shared expert, and experts routed by sigmoid with a selection bias in
//! the best groups.

use gristmill_kernels::ops::Activation;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{MlpSpec, ModelSpec, MoeSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let mut moe = file.sigmoid_moe(false, file.shared_experts()?)?;
    if let MlpSpec::Moe(MoeSpec { selection_bias, .. }) = &mut moe {
        *selection_bias = file.has_selection_bias()?;
    }
    file.model(file.dense_first(crate::family::qwen3::spec::attention(file)?, file.dense(Activation::SwiGlu)?, moe)?)
}

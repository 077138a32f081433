//! `ernie4_5-moe`: ERNIE 4.5 with experts. The first layers are dense. The others have shared experts, and experts
//! routed by softmax over all experts with a selection bias. RoPE pairs are interleaved.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{MlpSpec, ModelSpec, MoeSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = file.attention(RopeStyle::Interleaved)?;
    let mut moe = file.moe(true, file.shared_experts()?)?;
    if let MlpSpec::Moe(MoeSpec { selection_bias, .. }) = &mut moe {
        *selection_bias = file.has_selection_bias()?;
    }
    file.model(file.dense_first(attention, file.dense(Activation::SwiGlu)?, moe)?)
}

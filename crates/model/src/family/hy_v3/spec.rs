//! `hy_v3`: Hy3. Attention is that of `qwen3`. The first layers are dense. The others have a shared expert, and experts
//! routed by sigmoid with a selection bias.

use gristmill_kernels::ops::Activation;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{LayerSpec, Mixer, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = crate::family::qwen3::spec::attention(file)?;
    let moe = file.sigmoid_moe(true, file.shared_experts()?)?;
    let layer = |mlp| LayerSpec { mixer: Mixer::Attention(attention.clone()), mlp: Some(mlp) };
    let mlps = file.mlps_by_router(&file.dense(Activation::SwiGlu)?, &moe)?;
    file.model(mlps.into_iter().map(layer).collect())
}

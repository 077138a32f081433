//! `exaone-moe`: K-EXAONE. Attention is that of `exaone4`, with norms before the blocks. The first layers are dense.
//! The others have a shared expert, and experts routed by sigmoid with a selection bias.

use gristmill_kernels::ops::Activation;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{LayerSpec, Mixer, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let moe = file.sigmoid_moe(true, file.shared_experts()?)?;
    let mlps = file.dense_mlps_first(&file.dense(Activation::SwiGlu)?, &moe)?;
    let layer = |(attention, mlp)| LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp) };
    file.model(crate::family::exaone4::spec::attentions(file)?.into_iter().zip(mlps).map(layer).collect())
}

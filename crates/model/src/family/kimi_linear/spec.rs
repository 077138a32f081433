//! `kimi-linear`: Kimi Linear. Most layers are delta rules in which each element of a key has a gate (KDA). The others
//! have latent attention without RoPE. The first layers are dense. The others have a shared expert, and experts routed
//! by sigmoid with a selection bias.

use gristmill_kernels::ops::Activation;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{ChannelGates, DeltaSpec, LatentSpec, LayerSpec, Mixer, MlpSpec, ModelSpec, MoeSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let decay = file.decay(file.has_key("kda.gate_lower_bound"))?;
    let gates = ChannelGates { decay, is_negated: false, rank: Some(file.channel_width()?) };
    let latent = LatentSpec { rope: None, ..file.latent_of_hybrid()? };
    // Files have no key for the renormalisation of weights.
    model(file, file.channel_delta(gates)?, latent, file.sigmoid_moe(true, file.shared_experts()?)?)
}

/// A model of delta rules, and of latent attention in the layers with KV heads.
pub(crate) fn model(file: &KeyReader, delta: DeltaSpec, latent: LatentSpec, mut moe: MlpSpec) -> Result<ModelSpec> {
    if let MlpSpec::Moe(MoeSpec { selection_bias, .. }) = &mut moe {
        *selection_bias = file.has_selection_bias()?;
    }
    let layer = |(kv_heads, mlp): (usize, MlpSpec)| {
        let mixer = if kv_heads == 0 { Mixer::Delta(delta.clone()) } else { Mixer::Latent(latent.clone()) };
        LayerSpec { mixer, mlp: Some(mlp) }
    };
    let mlps = file.dense_mlps_first(&file.dense(Activation::SwiGlu)?, &moe)?;
    file.model(file.kv_heads()?.into_iter().zip(mlps).map(layer).collect())
}

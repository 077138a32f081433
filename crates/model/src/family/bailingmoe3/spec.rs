//! `bailingmoe3`: Ling 3. Most layers are delta rules in which each element of a key has a gate with a bound (KDA). The
//! others have latent attention with a gate for each head. The first layers are dense. The others have a shared expert,
//! and experts routed by sigmoid with a selection bias in the best groups.

use crate::error::Result;
use crate::family::kimi_linear::spec::model;
use crate::family::read::KeyReader;
use crate::spec::{ChannelGates, LatentSpec, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    for suffix in ["swiglu_clamp_exp", "swiglu_clamp_shexp"] {
        file.refuse_numbers(suffix, "0: experts whose activations are not clamped")?;
    }
    // Unlike those of `kimi-linear`, files have e^A_log and not its negative.
    let gates = ChannelGates { decay: file.decay(true)?, is_negated: true, rank: None };
    let latent = LatentSpec { is_gated: true, ..file.latent_of_hybrid()? };
    model(file, file.channel_delta(gates)?, latent, file.sigmoid_moe(false, file.shared_experts()?)?)
}

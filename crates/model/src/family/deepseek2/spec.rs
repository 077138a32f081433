//! `deepseek2`: DeepSeek V2 and V3, R1, Kimi K2, Moonlight, GLM-4.7-Flash and others. Attention is latent (MLA). The
//! first layers are dense. The others have shared experts, and experts routed in the best groups by softmax or by
//! sigmoid with a selection bias. In a file without experts, all layers are dense. Queries of Mistral Large 3 and Mistral
//! 4 have a temperature, which grows with each multiple of the original context.

use gristmill_kernels::ops::{Activation, Gating, GroupWorth};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{LayerSpec, Mixer, MlpSpec, ModelSpec, MoeSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let (latent, dense) = (file.latent_attention()?, file.dense(Activation::SwiGlu)?);
    let mlps = match file.has("expert_count")? {
        true => file.dense_mlps_first(&dense, &experts(file)?)?,
        false => vec![dense; file.layers()?],
    };
    let layer = |mlp| LayerSpec { mixer: Mixer::Latent(latent.clone()), mlp: Some(mlp) };
    file.model(mlps.into_iter().map(layer).collect())
}

/// DeepSeek V3 has 8 groups of 32 experts; its first files lack the keys.
const EXPERTS_OF_V3: usize = 256;
const GROUPS_OF_V3: [usize; 2] = [8, 4];

fn experts(file: &KeyReader) -> Result<MlpSpec> {
    let (shared, biased) = (file.shared_experts()?, file.has_selection_bias()?);
    let mut mlp = file.moe(false, shared)?;
    if let MlpSpec::Moe(MoeSpec { experts, routing, selection_bias, .. }) = &mut mlp {
        *selection_bias = biased;
        routing.gating = file.gating(if biased { Gating::Sigmoid } else { Gating::Softmax })?;
        if routing.gating == Gating::Softmax {
            routing.worth = GroupWorth::Highest;
        }
        if biased && *experts == EXPERTS_OF_V3 && !file.has_key("expert_group_count") {
            [routing.groups, routing.top_groups] = GROUPS_OF_V3;
        }
    }
    Ok(mlp)
}

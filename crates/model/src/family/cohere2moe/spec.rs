//! `cohere2moe`: North-Mini-Code. Layers are those of `cohere2`, except that the first layers are dense and always have
//! RoPE. The others have experts routed by their logits. The norm can be RMSNorm.

use gristmill_kernels::ops::{Activation, Gating, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, BlockInputs, LayerSpec, Mixer, MlpSpec, ModelSpec, MoeSpec, NormKind};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.refuse_count("expert_shared_count", "0: experts that serve every token of Cohere 2 are not implemented")?;
    let windowed = file.attention(RopeStyle::Interleaved)?;
    let full = AttentionSpec { window: None, ..windowed.clone() };
    let mut moe = file.moe(false, None)?;
    if let MlpSpec::Moe(MoeSpec { routing, .. }) = &mut moe {
        routing.gating = match file.gating(Gating::Sigmoid)? {
            // The model's softmax covers the chosen experts only.
            Gating::Softmax => Gating::SoftmaxOfChosen,
            gating => gating,
        };
    }
    let mlps = file.dense_mlps_first(&file.dense(Activation::SwiGlu)?, &moe)?;
    let layer = |(has_window, mlp): (bool, MlpSpec)| {
        let mut attention = if has_window { windowed.clone() } else { full.clone() };
        attention.rope = attention.rope.filter(|_| has_window || matches!(mlp, MlpSpec::Dense { .. }));
        LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp) }
    };
    let layers = file.windowed_by_flags()?.into_iter().zip(mlps).map(layer).collect();
    let (norm, epsilon) = match file.has_key("attention.layer_norm_rms_epsilon") {
        true => (NormKind::Rms, "attention.layer_norm_rms_epsilon"),
        false => (NormKind::LayerUnbiased, "attention.layer_norm_epsilon"),
    };
    let (model, logit_scale) = (file.model_with_epsilon(epsilon, layers)?, file.factor("logit_scale")?);
    Ok(ModelSpec { norm, inputs: BlockInputs::Shared, logit_scale, ..model })
}

//! `nemotron_h` and `nemotron_h_moe`: Nemotron Nano 2 and Nemotron 3. A layer is a selective scan, attention without RoPE,
//! or an MLP without a gate, dense or with experts, all behind one norm. Experts are routed by sigmoid with a selection bias;
//! in some models they read and write rows of a smaller width. The layer of a prediction head has attention and experts.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::{AttentionSpec, LayerSpec, Mixer, MlpSpec, ModelSpec, NormKind};

/// Some files have the epsilon also under the name of that of RMS norms, which all norms of the model's layers are.
const EPSILON: &str = "attention.layer_norm_epsilon";

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let (scan, has_experts) = (file.scan()?, file.has("expert_count")?);
    let widths = file.widths()?;
    let layer = |(index, (kv_heads, &width)): (usize, (usize, &usize))| {
        Ok(match (kv_heads, width) {
            (0, 0) => LayerSpec { mixer: Mixer::Scan(scan), mlp: None },
            (_, 0) => {
                let attention = file.attention_of(RopeStyle::Halves, kv_heads, Sections::None)?;
                let attention = AttentionSpec { rope: None, ..attention };
                LayerSpec { mixer: Mixer::Attention(attention), mlp: None }
            }
            (_, inner) => {
                let mlp = match has_experts {
                    true => file.ungated_moe(index, inner)?,
                    false => MlpSpec::Dense { inner, activation: Activation::SquaredRelu },
                };
                LayerSpec { mixer: Mixer::Sum(Vec::new()), mlp: Some(mlp) }
            }
        })
    };
    let layers = file.kv_heads()?.into_iter().zip(&widths).enumerate().map(layer).collect::<Result<_>>()?;
    // Nothing is rotated, whatever it says.
    file.ignore("rope.scaling.finetuned");
    let spec = file.model_with_epsilon(EPSILON, layers)?;
    file.same_number("attention.layer_norm_rms_epsilon", EPSILON)?;
    Ok(ModelSpec { mlp_norm: "post_attention_norm", head_norm: NormKind::LayerUnbiased, ..spec })
}

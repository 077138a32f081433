//! `gemma4`: Gemma 4, the text model. Layers with a window have heads and RoPE of their own; the others may take their
//! values from the keys. Values are normalised without a weight, and each layer ends with a scale. Beside experts there
//! is an MLP, and their router reads the residual stream through a norm of its own.

use gristmill_kernels::ops::{Activation, RopeStyle};

use super::read::Reader;
use crate::error::Result;
use crate::model::spec::{LayerSpec, Mixer, ModelSpec, QkNorm};

pub(super) fn spec(file: &Reader) -> Result<ModelSpec> {
    let without = "0: embeddings per layer and shared caches of Gemma 4 are not implemented";
    for suffix in ["embedding_length_per_layer_input", "attention.shared_kv_layers"] {
        file.refuse_count(suffix, without)?;
    }
    let mlp = if file.has("expert_count")? { file.moe_beside_mlp()? } else { file.dense(Activation::GeGlu)? };
    let attention = |(layer, (windowed, kv_heads)): (usize, (bool, usize))| {
        let mut attention = file.attention_of_window(RopeStyle::Halves, kv_heads, windowed)?;
        attention.scale = 1.0;
        attention.qk_norm = Some(QkNorm::PerHead);
        attention.value_norm = true;
        attention.values_are_keys = !windowed && !file.tensor(&format!("blk.{layer}.attn_v.weight"));
        Ok(LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp.clone()) })
    };
    let kinds = file.windowed(6)?.into_iter().zip(file.kv_heads()?);
    let layers = kinds.enumerate().map(attention).collect::<Result<_>>()?;
    let (embedding_scale, logit_cap) = ((file.hidden()? as f32).sqrt(), file.cap("final_logit_softcapping", None)?);
    let layer_scales = file.tensor("blk.0.layer_output_scale.weight");
    Ok(ModelSpec { post_norms: true, embedding_scale, layer_scales, logit_cap, ..file.model(layers)? })
}

//! `gemma4`: Gemma 4, the text model. Layers with a sliding window have separate head counts and RoPE; in the others,
//! values can be the keys. Values are normalised without a weight. Each layer ends with a scale. Experts run in
//! parallel with an MLP, and their router reads the residual stream through a separate norm. The E models have
//! per-layer embeddings, and their last layers read the KV caches of other layers.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{LayerSpec, Mixer, MlpSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let (windowed, kv_heads) = (file.windowed(6)?, file.kv_heads()?);
    let (mlps, sources) = (mlps(file)?, file.shared_caches(&windowed, &kv_heads)?);
    let layer_inputs = Some(file.count_or_zero("embedding_length_per_layer_input")?).filter(|&width| width > 0);
    let layer = |layer: usize| {
        let (windowed, own) = (windowed[layer], sources[layer].is_none());
        let mut attention = file.attention_of_window(RopeStyle::Halves, kv_heads[layer], windowed)?;
        attention.scale = 1.0;
        attention.qk_norm = Some(QkNorm::PerHead);
        attention.value_norm = own;
        attention.values_are_keys = own && !windowed && !file.tensor(&format!("blk.{layer}.attn_v.weight"));
        attention.kv_from = sources[layer];
        // The E models see images as text.
        attention.both_ways = windowed && layer_inputs.is_none();
        Ok(LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlps[layer].clone()) })
    };
    let layers = (0..mlps.len()).map(layer).collect::<Result<_>>()?;
    let (embedding_scale, logit_cap) = ((file.hidden()? as f32).sqrt(), file.cap("final_logit_softcapping", None)?);
    let layer_scales = file.tensor("blk.0.layer_output_scale.weight");
    let model = file.model(layers)?;
    Ok(ModelSpec { post_norms: true, embedding_scale, layer_scales, layer_inputs, logit_cap, ..model })
}

fn mlps(file: &KeyReader) -> Result<Vec<MlpSpec>> {
    file.refuse_count("expert_shared_count", "0: beside the experts of Gemma 4 there is an MLP")?;
    match file.has("expert_count")? {
        true => Ok(vec![file.moe_beside_mlp()?; file.layers()?]),
        false => file.dense_of_each_layer(Activation::GeGlu),
    }
}

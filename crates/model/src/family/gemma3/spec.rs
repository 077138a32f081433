//! `gemma3`: dense Gemma 3, the text model. Norms before and after each block, scaled embeddings, GeGLU. Of six layers,
//! five have a sliding window and another RoPE base. The converter has added 1 to the norm weights.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, LayerSpec, Mixer, ModelSpec, QkNorm};

/// The 27B model scales attention by 1 / √(hidden / heads). No key states it, so the number of layers identifies the
/// model.
const LAYERS_OF_27B: usize = 62;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    for suffix in ["attn_logit_softcapping", "final_logit_softcapping"] {
        file.refuse(suffix, "logits without a cap")?;
    }
    let qk_norm = Some(QkNorm::PerHead);
    let mut global = AttentionSpec { qk_norm, both_ways: true, ..file.attention(RopeStyle::Halves)? };
    let mlp = file.dense(Activation::GeGlu)?;
    if file.layers()? == LAYERS_OF_27B && file.number_or_zero("attention.scale")?.is_none() {
        global.scale = 1.0 / (file.hidden()? as f32 / global.heads as f32).sqrt();
    }
    let windowed = if global.window.is_some() { file.windowed(6)? } else { vec![false; file.layers()?] };
    let local = AttentionSpec { rope: file.windowed_rope(global.rope.as_ref())?, ..global.clone() };
    global.window = None;
    let attention = |windowed| if windowed { local.clone() } else { global.clone() };
    let layer = |windowed| LayerSpec { mixer: Mixer::Attention(attention(windowed)), mlp: Some(mlp.clone()) };
    let layers = windowed.into_iter().map(layer);
    Ok(ModelSpec { post_norms: true, embedding_scale: (file.hidden()? as f32).sqrt(), ..file.model(layers.collect())? })
}

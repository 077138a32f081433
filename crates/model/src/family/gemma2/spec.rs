//! `gemma2`: dense Gemma 2. As Gemma 3 without norms of queries and keys, and with soft caps of the attention logits
//! and the final logits. The first of every two layers has a sliding window. All layers have the same RoPE.

use gristmill_kernels::ops::{Activation, RopeStyle, Window};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, LayerSpec, Mixer, ModelSpec};

/// The 27B model scales attention by 1 / √(hidden / heads). No key states it, so the number of layers identifies the
/// model.
const LAYERS_OF_27B: usize = 46;

/// Soft caps and window of the published models. The first files lack the keys.
const ATTENTION_CAP: f32 = 50.0;
const LOGIT_CAP: f32 = 30.0;
const WINDOW: usize = 4096;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let mut global = file.attention(RopeStyle::Halves)?;
    if file.layers()? == LAYERS_OF_27B && file.number_or_zero("attention.scale")?.is_none() {
        global.scale = 1.0 / (file.hidden()? as f32 / global.heads as f32).sqrt();
    }
    global.cap = file.cap("attn_logit_softcapping", Some(ATTENTION_CAP))?;
    let window = global.window.take().unwrap_or(Window::Last(WINDOW));
    let mlp = file.dense(Activation::GeGlu)?;
    let layer = |windowed: bool| {
        let attention = AttentionSpec { window: windowed.then_some(window), ..global.clone() };
        LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp.clone()) }
    };
    let layers = file.window_pattern(2)?.into_iter().map(layer).collect();
    let (embedding_scale, logit_cap) =
        ((file.hidden()? as f32).sqrt(), file.cap("final_logit_softcapping", Some(LOGIT_CAP))?);
    Ok(ModelSpec { post_norms: true, embedding_scale, logit_cap, ..file.model(layers)? })
}

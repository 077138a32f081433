//! `olmo2`: OLMo 2 and 3. Norms follow attention and MLP, and no norms precede them. One norm covers all query heads,
//! and one all key heads. In OLMo 3, three of four layers have a sliding window, and the fourth has scaled RoPE.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, BlockInputs, LayerSpec, Mixer, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let windowed = AttentionSpec { qk_norm: Some(QkNorm::WholeRow), ..file.attention(RopeStyle::Halves)? };
    let full = AttentionSpec { window: None, ..windowed.clone() };
    let windowed = AttentionSpec { rope: file.unscaled_rope(full.rope.as_ref())?, ..windowed };
    let mlp = file.dense(Activation::SwiGlu)?;
    let layer = |has_window| {
        let attention = if has_window { &windowed } else { &full };
        LayerSpec { mixer: Mixer::Attention(attention.clone()), mlp: Some(mlp.clone()) }
    };
    let layers = file.windowed_if_any(4)?.into_iter().map(layer).collect();
    Ok(ModelSpec { inputs: BlockInputs::Residual, post_norms: true, ..file.model(layers)? })
}

//! `exaone4`: EXAONE 4, dense. Norms follow attention and MLP, and no norms precede them. Queries and keys are
//! normalised per head. In models with sliding windows, every fourth layer has full attention and no RoPE.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, BlockInputs, LayerSpec, Mixer, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let mlp = file.dense(Activation::SwiGlu)?;
    let layer = |attention| LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp.clone()) };
    let layers = attentions(file)?.into_iter().map(layer).collect();
    Ok(ModelSpec { inputs: BlockInputs::Residual, post_norms: true, ..file.model(layers)? })
}

/// The attention of each layer.
pub(crate) fn attentions(file: &KeyReader) -> Result<Vec<AttentionSpec>> {
    let windowed = AttentionSpec { qk_norm: Some(QkNorm::PerHead), ..file.attention(RopeStyle::Halves)? };
    let without_windows = windowed.window.is_none();
    let full = AttentionSpec { window: None, rope: None, ..windowed.clone() };
    let attention = |has_window| if has_window || without_windows { windowed.clone() } else { full.clone() };
    Ok(file.windowed_if_any(4)?.into_iter().map(attention).collect())
}

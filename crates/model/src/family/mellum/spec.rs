//! `mellum`: Mellum 2. As `qwen3moe`; three of four layers have a sliding window and unscaled RoPE.

use gristmill_kernels::ops::RopeStyle;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, LayerSpec, Mixer, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = AttentionSpec { qk_norm: Some(QkNorm::PerHead), ..file.attention(RopeStyle::Halves)? };
    let full = AttentionSpec { window: None, ..attention.clone() };
    let windowed = AttentionSpec { rope: file.unscaled_rope(attention.rope.as_ref())?, ..attention };
    let moe = file.moe(true, None)?;
    let layer = |has_window: bool| {
        let attention = if has_window { &windowed } else { &full };
        LayerSpec { mixer: Mixer::Attention(attention.clone()), mlp: Some(moe.clone()) }
    };
    file.model(file.windowed_if_any(4)?.into_iter().map(layer).collect())
}

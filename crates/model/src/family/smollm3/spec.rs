//! `smollm3`: SmolLM3. As `llama`, but every fourth layer has no RoPE.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, LayerSpec, Mixer, ModelSpec};

/// Period of the layers without RoPE, the last of each period; there is no key for it.
const PERIOD: usize = 4;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let (attention, mlp) = (file.attention(RopeStyle::Interleaved)?, file.dense(Activation::SwiGlu)?);
    let layer = |index: usize| {
        let rope = attention.rope.clone().filter(|_| !(index + 1).is_multiple_of(PERIOD));
        let attention = AttentionSpec { rope, ..attention.clone() };
        LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp.clone()) }
    };
    file.model((0..file.layers()?).map(layer).collect())
}

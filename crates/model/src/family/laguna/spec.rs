//! `laguna`: Laguna. Of four layers the first sees everything, and has heads and a rotation of its own; the others see a
//! window. The softplus of a gate multiplies attention's output, with a number for each head or for each element. The
//! first layers are dense, the others have experts chosen by sigmoid with a bias, and one that serves every token.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, LayerSpec, Mixer, MlpSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    for key in ["attention.layer_types", "rope.swa.freq_base", "rope.swa.dimension_count"] {
        file.refuse_key(key, "files as llama.cpp's converter writes them")?;
    }
    let (windowed, heads, kv_heads) = (file.windowed_after_first(4)?, file.heads()?, file.kv_heads()?);
    let moe = file.sigmoid_moe(true, file.shared_experts()?)?;
    let mlps = file.dense_mlps_first(&file.dense(Activation::SwiGlu)?, &moe)?;
    let layer = |(layer, mlp): (usize, MlpSpec)| {
        let (heads, kv_heads) = (heads[layer], kv_heads[layer]);
        let attention = AttentionSpec {
            qk_norm: Some(QkNorm::PerHead),
            gate: Some(file.softplus_gate(layer, heads)),
            ..file.attention_of_heads(RopeStyle::Halves, [heads, kv_heads], windowed[layer])?
        };
        Ok(LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp) })
    };
    file.model(mlps.into_iter().enumerate().map(layer).collect::<Result<_>>()?)
}

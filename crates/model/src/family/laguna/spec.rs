//! `laguna`: Laguna. The first of four layers has full attention, with separate head counts and RoPE; the others have a
//! sliding window. The softplus of a gate multiplies attention output, per head or per element. The first layers are
//! dense. The others have a shared expert, and experts routed by sigmoid with a selection bias.

use gristmill_kernels::ops::{Activation, GateKind, RopeStyle};

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
            gate: Some(file.output_gate(layer, heads, GateKind::Softplus)),
            ..file.attention_of_heads(RopeStyle::Halves, [heads, kv_heads], windowed[layer])?
        };
        Ok(LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp) })
    };
    file.model(mlps.into_iter().enumerate().map(layer).collect::<Result<_>>()?)
}

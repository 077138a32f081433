//! `afmoe`: Trinity. Norms before and after each block, scaled embeddings, gated attention output. Of four layers,
//! three have a sliding window, and the fourth has no RoPE. The first layers are dense. The others have shared experts,
//! and experts routed by sigmoid with a selection bias.

use gristmill_kernels::ops::{Activation, GateKind, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, GateRows, LayerSpec, Mixer, ModelSpec, OutputGate, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let windowed = AttentionSpec {
        qk_norm: Some(QkNorm::PerHead),
        gate: Some(OutputGate { rows: GateRows::Apart, kind: GateKind::Sigmoid, per_head: false }),
        ..file.attention(RopeStyle::Halves)?
    };
    let full = AttentionSpec { window: None, rope: None, ..windowed.clone() };
    let moe = file.sigmoid_moe(true, file.shared_experts()?)?;
    let mlps = file.dense_mlps_first(&file.dense(Activation::SwiGlu)?, &moe)?;
    let layer = |(has_window, mlp)| {
        let attention = if has_window { &windowed } else { &full };
        LayerSpec { mixer: Mixer::Attention(attention.clone()), mlp: Some(mlp) }
    };
    let layers = file.windowed(4)?.into_iter().zip(mlps).map(layer).collect();
    Ok(ModelSpec { post_norms: true, embedding_scale: (file.hidden()? as f32).sqrt(), ..file.model(layers)? })
}

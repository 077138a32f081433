//! `muse-glimmer`: Muse Glimmer, the text model. Embeddings are normalised. Norms before and after each block;
//! attention output is gated. Of four layers, three have a sliding window, and the fourth has no RoPE.

use gristmill_kernels::ops::{Activation, GateKind, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, GateRows, LayerSpec, Mixer, ModelSpec, OutputGate, QkNorm};

/// Epsilon of the norms that follow a block; there is no key for it.
const POST_NORM_EPSILON: f32 = 1e-8;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let windowed = AttentionSpec {
        qk_norm: Some(QkNorm::PerHead),
        gate: Some(OutputGate { rows: GateRows::Apart, kind: GateKind::Sigmoid, per_head: false }),
        ..file.attention(RopeStyle::Interleaved)?
    };
    let full = AttentionSpec { window: None, rope: None, ..windowed.clone() };
    let mlp = file.dense(Activation::SwiGlu)?;
    let layer = |has_window: bool| {
        let attention = if has_window { &windowed } else { &full };
        LayerSpec { mixer: Mixer::Attention(attention.clone()), mlp: Some(mlp.clone()) }
    };
    let layers = file.windowed(4)?.into_iter().map(layer).collect();
    Ok(ModelSpec {
        embedding_norm: true,
        post_norms: true,
        post_norm_eps: Some(POST_NORM_EPSILON),
        logit_scale: file.factor("logit_scale")?,
        logit_cap: file.cap("final_logit_softcapping", None)?,
        ..file.model(layers)?
    })
}

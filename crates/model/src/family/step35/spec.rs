//! `step35`: Step 3.5 and 3.7 Flash. Layers with a window have other numbers of heads than layers with full attention,
//! which rotate half of each head. A gate for each head multiplies attention's output. The first layers are dense. The
//! others have a shared expert, and experts routed by sigmoid with a selection bias. The factors of SwiGLU have a limit in
//! some layers.
//!
//! Prediction heads form a chain of residual streams, as in vLLM, SGLang and llama.cpp. Their limits are their own.
//!
//! The limit of the gate follows its silu, as in transformers, mlx-lm, vLLM and llama.cpp. That of the shared expert is
//! also the limit of a dense MLP.

use gristmill_kernels::ops::{Activation, GateKind, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, HeadInputs, LayerSpec, Mixer, MlpSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let (windowed, heads, kv_heads) = (file.windowed_by_flags()?, file.heads()?, file.kv_heads()?);
    let limits = [file.swiglu_of_each_layer("swiglu_clamp_exp")?, file.swiglu_of_each_layer("swiglu_clamp_shexp")?];
    let moe = file.sigmoid_moe(true, file.shared_experts()?)?;
    let mlps = file.dense_mlps_first(&file.dense(Activation::SwiGlu)?, &moe)?;
    let layer = |(layer, mlp): (usize, MlpSpec)| {
        let attention = file.attention_of_heads(RopeStyle::Halves, [heads[layer], kv_heads[layer]], windowed[layer])?;
        let attention = AttentionSpec {
            qk_norm: Some(QkNorm::PerHead),
            gate: Some(file.output_gate(layer, heads[layer], GateKind::Sigmoid)),
            rope: if windowed[layer] { attention.rope } else { file.half_rotated(attention.rope)? },
            ..attention
        };
        let mlp = mlp.with_activations(limits.each_ref().map(|limits| limits[layer]));
        Ok(LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp) })
    };
    let mut spec = file.model(mlps.into_iter().enumerate().map(layer).collect::<Result<_>>()?)?;
    for (head, layer) in spec.heads.iter_mut().zip(spec.layers.len()..) {
        let limits = limits.each_ref().map(|limits| limits[layer]);
        head.mlp = head.mlp.take().map(|mlp| mlp.with_activations(limits));
    }
    Ok(ModelSpec { head_inputs: HeadInputs { normed: false, chained: true }, ..spec })
}

//! `lfm2` and `lfm2moe`: LFM2, dense, or with experts after the first layers. Experts are routed by sigmoid, with a
//! selection bias if the file has one. Layers without KV heads are short convolutions between two gates. Queries and
//! keys are normalised per head.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::{AttentionSpec, ConvolutionSpec, LayerSpec, Mixer, MlpSpec, ModelSpec, MoeSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let dense = file.dense(Activation::SwiGlu)?;
    let mut moe = if file.has("expert_count")? { file.sigmoid_moe(true, None)? } else { dense.clone() };
    if let MlpSpec::Moe(MoeSpec { selection_bias, .. }) = &mut moe {
        *selection_bias = file.tensor(&format!("blk.{}.exp_probs_b.bias", file.layers()?.saturating_sub(1)));
    }
    let mlps = file.dense_mlps_first(&dense, &moe)?;
    let layer = |(mixer, mlp)| LayerSpec { mixer, mlp: Some(mlp) };
    let layers = mixers(file)?.into_iter().zip(mlps).map(layer).collect();
    Ok(ModelSpec { output_norm: "token_embd_norm", ..file.model(layers)? })
}

/// The mixers of the LFM2 family.
fn mixers(file: &KeyReader) -> Result<Vec<Mixer>> {
    let convolution = ConvolutionSpec { taps: file.taps("shortconv.l_cache")? };
    let mixer = |kv_heads: usize| match kv_heads {
        0 => Ok(Mixer::Convolution(convolution)),
        _ => {
            let attention = file.attention_of(RopeStyle::Halves, kv_heads, Sections::None)?;
            Ok(Mixer::Attention(AttentionSpec { qk_norm: Some(QkNorm::PerHead), ..attention }))
        }
    };
    file.kv_heads()?.into_iter().map(mixer).collect()
}

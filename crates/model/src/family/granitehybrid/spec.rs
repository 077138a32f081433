//! `granitehybrid`: Granite 4 with selective scans. Layers without KV heads are scans. As `granite` otherwise, without RoPE.
//! Bamba has RoPE in a part of each head, but llama.cpp's converter reorders the rows of the whole head, so that no rotation
//! of neighbours or halves is the right one.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::{AttentionSpec, LayerSpec, Mixer, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let mlp = match file.has("expert_count")? {
        true => file.moe(true, file.shared_experts()?)?,
        false => file.dense(Activation::SwiGlu)?,
    };
    file.refuse_flag("rope.scaling.finetuned", "false (no RoPE, unlike Bamba)")?;
    let scan = file.scan()?;
    let layer = |kv_heads: usize| {
        let mixer = match kv_heads {
            0 => Mixer::Scan(scan),
            _ => {
                let attention = file.attention_of(RopeStyle::Interleaved, kv_heads, Sections::None)?;
                Mixer::Attention(AttentionSpec { rope: None, ..attention })
            }
        };
        Ok(LayerSpec { mixer, mlp: Some(mlp.clone()) })
    };
    let layers = file.kv_heads()?.into_iter().map(layer).collect::<Result<_>>()?;
    Ok(ModelSpec {
        embedding_scale: file.factor("embedding_scale")?,
        residual_scale: file.factor("residual_scale")?,
        logit_scale: file.divisor("logit_scale")?,
        ..file.model(layers)?
    })
}

//! `granitehybrid`: Granite 4 with selective scans. Layers without KV heads are scans. As `granite` otherwise, without RoPE.
//! Bamba's files say that positions are rotated. RoPE rotates the halves of a part of each head, but llama.cpp's converter
//! lets the halves of the whole head alternate.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::{AttentionSpec, LayerSpec, Mixer, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let mlp = match file.has("expert_count")? {
        true => file.moe(true, file.shared_experts()?)?,
        false => file.dense(Activation::SwiGlu)?,
    };
    let is_bamba = file.flag_or("rope.scaling.finetuned", true)?;
    let scan = file.scan()?;
    let layer = |kv_heads: usize| {
        let mixer = match kv_heads {
            0 => Mixer::Scan(scan),
            _ => {
                let attention = match is_bamba {
                    true => {
                        let attention = file.attention_of(RopeStyle::Halves, kv_heads, Sections::None)?;
                        AttentionSpec { halves_alternate: true, ..attention }
                    }
                    false => {
                        let attention = file.attention_of(RopeStyle::Interleaved, kv_heads, Sections::None)?;
                        AttentionSpec { rope: None, ..attention }
                    }
                };
                Mixer::Attention(attention)
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

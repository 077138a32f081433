//! `jamba`: selective scans of Mamba-1, and attention without RoPE in layers that have KV heads. Layers with a router have
//! experts, the others an MLP.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::{AttentionSpec, LayerSpec, Mixer, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let scan = file.channel_scan()?;
    let mixer = |kv_heads: usize| -> Result<Mixer> {
        match kv_heads {
            0 => Ok(Mixer::Scan(scan)),
            _ => {
                let attention = file.attention_of(RopeStyle::Halves, kv_heads, Sections::None)?;
                Ok(Mixer::Attention(AttentionSpec { rope: None, ..attention }))
            }
        }
    };
    let (layers, dense) = (file.layers()?, file.dense(Activation::SwiGlu)?);
    let has_experts = (0..layers).any(|layer| file.tensor(&format!("blk.{layer}.ffn_gate_inp.weight")));
    let mlps = match has_experts {
        true => file.mlps_by_router(&dense, &file.moe(false, None)?)?,
        false => {
            // A model without experts has a count of 1.
            ["expert_count", "expert_used_count"].into_iter().for_each(|suffix| file.ignore(suffix));
            vec![dense; layers]
        }
    };
    let layer = |(kv_heads, mlp)| Ok(LayerSpec { mixer: mixer(kv_heads)?, mlp: Some(mlp) });
    file.model(file.kv_heads()?.into_iter().zip(mlps).map(layer).collect::<Result<_>>()?)
}

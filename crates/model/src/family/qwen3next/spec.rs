//! `qwen3next`: Qwen3-Next. Of four layers, three are gated delta rules, and the fourth has attention with gated
//! output. Each has experts and a gated shared expert. Value heads that share a key head are adjacent.

use gristmill_kernels::ops::{GateKind, HeadMap, RopeStyle};

use crate::error::Result;
use crate::family::read::{KeyReader, Sections};
use crate::spec::{
    AttentionSpec, DeltaProjections, DeltaSpec, GateRows, LayerSpec, Mixer, MlpSpec, ModelSpec, OutputGate, QkNorm,
};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let delta = file.delta(HeadMap::Grouped, DeltaProjections::GatesJoined)?;
    let mlp = file.moe(true, Some(file.gated_shared_expert()?))?;
    model(file, delta, Sections::None, mlp)
}

/// A model of the family.
pub(crate) fn model(file: &KeyReader, delta: DeltaSpec, sections: Sections, mlp: MlpSpec) -> Result<ModelSpec> {
    let layer = |(recurrent, kv_heads): (bool, usize)| {
        let mixer = match recurrent {
            true => Mixer::Delta(delta.clone()),
            false => {
                let attention = file.attention_of(RopeStyle::Halves, kv_heads, sections)?;
                let gate = Some(OutputGate { rows: GateRows::WithQueries, kind: GateKind::Sigmoid, per_head: false });
                Mixer::Attention(AttentionSpec { qk_norm: Some(QkNorm::PerHead), gate, ..attention })
            }
        };
        Ok(LayerSpec { mixer, mlp: Some(mlp.clone()) })
    };
    let layers = file.recurrent()?.into_iter().zip(file.kv_heads()?).map(layer).collect::<Result<_>>()?;
    Ok(ModelSpec { mlp_norm: "post_attention_norm", ..file.model(layers)? })
}

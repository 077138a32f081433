//! Phi-3, Phi-3.5-mini, Phi-4 and Phi-4-mini: fused tensors for queries, keys and values, and for gate and up.

use crate::family::parts::{BASE, COMMON, NORMS, count, needed, norm_epsilon};
use crate::family::published::{Family, Key, Mlx, Or, Rotated, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["phi3"],
    mlx: Mlx::Yes(&["phi3"]),
    architecture: "phi3",
    keys: &[COMMON, &norm_epsilon(1e-5), KEYS],
    nulls: &["sliding_window"],
    longrope: &["longrope", "su", "yarn"],
    rotated: Rotated::Part(1.0),
    pre: Some("dbrx"),
    layer: &[NORMS, ATTENTION],
    mlps: &[FUSED],
    ..BASE
};

const KEYS: &[Key] = &[count("attention.sliding_window", &["sliding_window"], Or::Count(0))];

const ATTENTION: &[Rule] = &[
    needed("blk.{layer}.attn_qkv.weight", "model.layers.{layer}.self_attn.qkv_proj.weight"),
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.self_attn.o_proj.weight"),
];

/// A dense MLP with a fused gate and up tensor.
pub(crate) const FUSED: &[Rule] = &[
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.mlp.gate_up_proj.weight"),
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.mlp.down_proj.weight"),
];

//! Qwen 1.5 and 2 with experts, and a gated shared expert.

use crate::family::parts::{COMMON, EXPERTS, MOE, NORMS, biased, count, needed, norm_epsilon, renormalised};
use crate::family::published::{Family, How, Key, Mlx, Or, Rule};
use crate::family::qwen2::published as qwen2;

pub(crate) const FAMILY: Family = Family {
    model_types: &["qwen2_moe"],
    mlx: Mlx::Yes(&["qwen2_moe"]),
    architecture: "qwen2moe",
    keys: &[COMMON, &norm_epsilon(1e-6), EXPERTS, KEYS],
    layer: &[NORMS, ATTENTION, SHARED],
    mlps: &[MOE],
    ..qwen2::FAMILY
};

const ATTENTION: &[Rule] = &biased(How::Same, How::Same, "qkv_bias", "qkv_bias");

const KEYS: &[Key] = &[
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"], Or::Refuse),
    renormalised(false),
];

/// The shared expert and its gate.
pub(crate) const SHARED: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_inp_shexp.weight", "model.layers.{layer}.mlp.shared_expert_gate.weight"),
    needed("blk.{layer}.ffn_gate_shexp.weight", "model.layers.{layer}.mlp.shared_expert.gate_proj.weight"),
    needed("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.mlp.shared_expert.up_proj.weight"),
    needed("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.mlp.shared_expert.down_proj.weight"),
];

//! Hy3: attention as in Qwen 3. The first layers are dense. The others have a shared expert, and experts routed by
//! sigmoid with a selection bias.

use crate::family::parts::{
    ATTENTION, BASE, COMMON, DENSE, EXPERTS, FINAL_NORM_HEADS, NORMS, QK_NORMS, count, expect_flag, expect_text,
    factor, head_widths, moe, norm_epsilon, optional,
};
use crate::family::published::{Family, Key, Kind, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["hy_v3"],
    mlx: Mlx::No,
    architecture: "hy_v3",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-5), &head_widths(Or::Count(128)), KEYS],
    beyond: &["route_norm"],
    expects: &[expect_text("hidden_act", "silu"), expect_flag("mlp_bias", false), expect_flag("route_norm", true)],
    heads: FINAL_NORM_HEADS,
    layer: &[NORMS, ATTENTION, QK_NORMS, SELECTION_BIAS, SHARED],
    mlps: &[MOE, DENSE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_feed_forward_length", &[], Or::Product("moe_intermediate_size", "num_shared_experts")),
    factor("expert_weights_scale", &["router_scaling_factor"], Or::Number(1.0)),
    Key { ours: "expert_weights_norm", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) },
    count("expert_gating_func", &[], Or::Count(2)),
];

const SELECTION_BIAS: &[Rule] = &[optional("blk.{layer}.exp_probs_b", "model.layers.{layer}.mlp.expert_bias")];

const MOE: &[Rule] = &moe("model.layers.{layer}.mlp.router.gate.weight");

const SHARED: &[Rule] = &[
    optional("blk.{layer}.ffn_gate_shexp.weight", "model.layers.{layer}.mlp.shared_mlp.gate_proj.weight"),
    optional("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.mlp.shared_mlp.up_proj.weight"),
    optional("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.mlp.shared_mlp.down_proj.weight"),
];

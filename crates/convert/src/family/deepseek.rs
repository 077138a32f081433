//! The first DeepSeek MoE: the first layers are dense, the others have experts that serve every token besides those
//! chosen.

use super::llama::ATTENTION;
use super::parts::{
    BASE, COMMON, DENSE, EXPERTS, MOE, NORMS, WIDTH, count, expect_number, expect_text, head_widths, norm_epsilon,
    number, optional, renormalised,
};
use super::{Family, Key, Kind, Or, Rule};

pub(super) const FAMILY: Family = Family {
    model_types: &["deepseek"],
    architecture: "deepseek",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-6), &head_widths(Or::Skip), KEYS],
    nulls: &["head_dim", "n_shared_experts"],
    expects: &[expect_text("hidden_act", "silu"), expect_number("moe_layer_freq", 1.0)],
    layer: &[NORMS, ATTENTION, SHARED],
    mlps: &[MOE, DENSE],
    ..BASE
};

/// The numbers are those of GGUF.
const GATING: Kind = Kind::Named(&[("softmax", 1)]);

const KEYS: &[Key] = &[
    count("rope.dimension_count", &["head_dim"], WIDTH),
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("leading_dense_block_count", &["first_k_dense_replace"], Or::Count(0)),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["n_shared_experts"], Or::Skip),
    number("expert_weights_scale", &["routed_scaling_factor"], Or::Number(1.0)),
    Key { ours: "expert_gating_func", theirs: &["scoring_func"], kind: GATING, or: Or::Skip },
    renormalised(false),
];

/// Layers with experts have them, if the settings say how many.
const SHARED: &[Rule] = &[
    optional("blk.{layer}.ffn_gate_shexp.weight", "model.layers.{layer}.mlp.shared_experts.gate_proj.weight"),
    optional("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.mlp.shared_experts.up_proj.weight"),
    optional("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.mlp.shared_experts.down_proj.weight"),
];

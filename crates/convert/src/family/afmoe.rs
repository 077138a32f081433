//! Trinity: norms before and after each block, a gate of attention's output, scaled embeddings; the first layers are
//! dense, the others have experts that serve every token besides those that a sigmoid with a bias chooses.

use super::parts::{
    ATTENTION, BASE, COMMON, DENSE, EXPERTS, LAYER_TYPES, QK_NORMS, SHARED_EXPERTS, count, expect_flag, expect_text,
    head_widths, moe, needed, norm_epsilon, number, optional,
};
use super::{Family, Key, Kind, Or, Rule};

pub(super) const FAMILY: Family = Family {
    model_types: &["afmoe"],
    architecture: "afmoe",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-5), &head_widths(Or::Count(128)), KEYS],
    nulls: &["sliding_window"],
    expects: &[expect_text("hidden_act", "silu"), expect_flag("mup_enabled", true)],
    layer: &[NORMS, ATTENTION, QK_NORMS, GATE, SELECTION_BIAS, SHARED_EXPERTS],
    mlps: &[MOE, DENSE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("rope.dimension_count", &["head_dim"], Or::Count(128)),
    count("attention.sliding_window", &["sliding_window"], Or::Skip),
    Key {
        ours: "attention.sliding_window_pattern",
        theirs: &[LAYER_TYPES, "global_attn_every_n_layers"],
        kind: Kind::WindowsUnless { period: 4 },
        or: Or::Skip,
    },
    count("expert_group_count", &["n_group"], Or::Skip),
    count("expert_group_used_count", &["topk_group"], Or::Skip),
    count("leading_dense_block_count", &["num_dense_layers"], Or::Count(1)),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["num_shared_experts"], Or::Refuse),
    number("expert_weights_scale", &["route_scale"], Or::Number(1.0)),
    Key { ours: "expert_weights_norm", theirs: &["route_norm"], kind: Kind::Flag, or: Or::Flag(true) },
    Key { ours: "expert_gating_func", theirs: &["score_func"], kind: Kind::Named(&[("sigmoid", 2)]), or: Or::Count(2) },
];

const NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    needed("blk.{layer}.post_attention_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
    needed("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.pre_mlp_layernorm.weight"),
    needed("blk.{layer}.post_ffw_norm.weight", "model.layers.{layer}.post_mlp_layernorm.weight"),
];

const GATE: &[Rule] = &[needed("blk.{layer}.attn_gate.weight", "model.layers.{layer}.self_attn.gate_proj.weight")];

const SELECTION_BIAS: &[Rule] = &[optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.mlp.expert_bias")];

const MOE: &[Rule] = &moe("model.layers.{layer}.mlp.router.gate.weight");

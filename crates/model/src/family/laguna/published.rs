//! Laguna: the first of four layers has full attention, with separate query heads and RoPE. Attention output is gated.
//! After the first layers, layers have a shared expert, and experts routed by sigmoid with a selection bias.

use crate::family::parts::{
    ATTENTION, BASE, DENSE, EXPERTS, LAYER_TYPES, MOE, NORMS, QK_NORMS, SELECTION_BIAS, count, expect_flag,
    expect_number, expect_text, factor, head_widths, moe, needed, norm_epsilon, optional,
};
use crate::family::published::{Family, Key, Kind, Mlx, Or, Rotated, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["laguna"],
    mlx: Mlx::Changed(&["laguna"]),
    architecture: "laguna",
    keys: &[KEYS, EXPERTS, &norm_epsilon(1e-6), &head_widths(Or::Count(128))],
    rotated: Rotated::Part(1.0),
    pre: Some("laguna"),
    expects: &[
        expect_text("hidden_act", "silu"),
        expect_number("moe_router_logit_softcapping", 0.0),
        expect_flag("moe_apply_router_weight_on_input", false),
    ],
    layer: &[NORMS, ATTENTION, QK_NORMS, GATE, BIAS, SELECTION_BIAS, SHARED],
    mlps: &[MOE, RENAMED, DENSE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("feed_forward_length", &["intermediate_size"], Or::Refuse),
    count("attention.head_count_kv", &["num_key_value_heads"], Or::Refuse),
    Key {
        ours: "attention.head_count",
        theirs: &["num_attention_heads"],
        kind: Kind::CountsOr("num_attention_heads_per_layer"),
        or: Or::Refuse,
    },
    count("attention.sliding_window", &["sliding_window"], Or::Count(512)),
    Key {
        ours: "attention.sliding_window_pattern",
        theirs: &[LAYER_TYPES],
        kind: Kind::WindowsAfterFirstUnless { period: 4 },
        or: Or::Refuse,
    },
    count("vocab_size", &["vocab_size"], Or::Refuse),
    Key {
        ours: "leading_dense_block_count",
        theirs: &["mlp_layer_types"],
        kind: Kind::CountOrFirst("dense"),
        or: Or::Count(1),
    },
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"], Or::Refuse),
    count("expert_gating_func", &[], Or::Count(2)),
    Key { ours: "expert_weights_norm", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) },
    factor("expert_weights_scale", &["moe_routed_scaling_factor"], Or::Number(1.0)),
];

const GATE: &[Rule] = &[needed("blk.{layer}.attn_gate.weight", "model.layers.{layer}.self_attn.g_proj.weight")];

/// The selection bias in published folders; MLX's folders have [`SELECTION_BIAS`].
const BIAS: &[Rule] =
    &[optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.mlp.experts.e_score_correction_bias")];

const SHARED: &[Rule] = &[
    optional("blk.{layer}.ffn_gate_shexp.weight", "model.layers.{layer}.mlp.shared_expert.gate_proj.weight"),
    optional("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.mlp.shared_expert.up_proj.weight"),
    optional("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.mlp.shared_expert.down_proj.weight"),
];

/// MLX's name of the router.
const RENAMED: &[Rule] = &moe("model.layers.{layer}.mlp.gate.proj.weight");

//! Trinity: norms before and after each block, gated attention output, scaled embeddings. The first layers are dense.
//! The others have shared experts, and experts routed by sigmoid with a selection bias.

use crate::family::parts::{
    ATTENTION, BASE, COMMON, DENSE, EXPERTS, LAYER_TYPES, QK_NORMS, SHARED_EXPERTS, count, expect_flag, expect_number,
    expect_text, factor, head_widths, moe, needed, norm_epsilon, optional, positive,
};
use crate::family::published::{Family, Key, Kind, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["afmoe"],
    mlx: Mlx::Changed(&["afmoe"]),
    architecture: "afmoe",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-5), &head_widths(Or::Count(128)), KEYS],
    beyond: &["score_func", "route_norm", "n_group", "topk_group"],
    nulls: &["sliding_window"],
    expects: &[
        expect_text("hidden_act", "silu"),
        expect_flag("mup_enabled", true),
        expect_flag("route_norm", true),
        // transformers reads neither.
        expect_number("n_group", 1.0),
        expect_number("topk_group", 1.0),
    ],
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
    positive("expert_group_count", &["n_group"]),
    positive("expert_group_used_count", &["topk_group"]),
    count("leading_dense_block_count", &["num_dense_layers"], Or::Count(1)),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["num_shared_experts"], Or::Refuse),
    factor("expert_weights_scale", &["route_scale"], Or::Number(1.0)),
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

//! Ling 2 and Ring 2: queries, keys and values are one tensor. The first layers are dense. The others have a shared
//! expert, and experts routed by sigmoid with a selection bias in the best groups.

use crate::family::parts::{
    BASE, COMMON, DENSE, EXPERTS, MOE, NORMS, OUTPUT_NORM_HEADS, SHARED_EXPERTS, count, expect_flag, expect_text,
    factor, head_widths, moe, needed, norm_epsilon, optional, positive, sigmoid_router,
};
use crate::family::published::{Family, Key, Kind, Mlx, Need, Or, Rotated, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["bailing_moe", "bailing_moe_v2"],
    mlx: Mlx::Changed(&["bailing_moe"]),
    architecture: "bailingmoe2",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-6), &head_widths(Or::Skip), KEYS],
    nulls: &["head_dim", "moe_shared_expert_intermediate_size"],
    rotated: Rotated::Part(0.5),
    pre: Some("bailingmoe2"),
    expects: &[expect_text("hidden_act", "silu"), expect_flag("norm_head", false), expect_flag("use_qk_norm", true)],
    heads: OUTPUT_NORM_HEADS,
    globals: &[GLOBALS],
    layer: &[NORMS, ATTENTION, SELECTION_BIAS, SHARED_EXPERTS],
    mlps: &[MOE, MOE_OF_MLX, DENSE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("vocab_size", &["vocab_size"], Or::Refuse),
    positive("expert_group_count", &["n_group"]),
    positive("expert_group_used_count", &["topk_group"]),
    // The first Ling has none.
    count("leading_dense_block_count", &["first_k_dense_replace"], Or::Refuse),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count(
        "expert_shared_feed_forward_length",
        &["moe_shared_expert_intermediate_size"],
        Or::Product("moe_intermediate_size", "num_shared_experts"),
    ),
    count("expert_shared_count", &["num_shared_experts"], Or::Refuse),
    factor("expert_weights_scale", &["routed_scaling_factor"], Or::Number(1.0)),
    Key { ours: "expert_weights_norm", theirs: &["norm_topk_prob"], kind: Kind::Flag, or: Or::Refuse },
    sigmoid_router(&["score_function"], Or::Refuse),
    // llama.cpp's converter writes the key of a model without prediction heads too.
    count("nextn_predict_layers", &[], Or::Count(0)),
];

const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "model.word_embeddings.weight"),
    needed("output_norm.weight", "model.norm.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") },
];

const ATTENTION: &[Rule] = &[
    needed("blk.{layer}.attn_qkv.weight", "model.layers.{layer}.attention.query_key_value.weight"),
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.attention.dense.weight"),
    needed("blk.{layer}.attn_q_norm.weight", "model.layers.{layer}.attention.query_layernorm.weight"),
    needed("blk.{layer}.attn_k_norm.weight", "model.layers.{layer}.attention.key_layernorm.weight"),
];

/// The tensors with MLX's name for the router.
const MOE_OF_MLX: &[Rule] = &moe("model.layers.{layer}.mlp.gate.gate_proj.weight");

const SELECTION_BIAS: &[Rule] =
    &[optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.mlp.gate.expert_bias")];

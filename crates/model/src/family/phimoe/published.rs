//! Phi-3.5-MoE: layer norms with biases, experts as in Mixtral.

use crate::family::llama::published::MIXTRAL_EXPERTS;
use crate::family::parts::{
    ATTENTION, BASE, COMMON, EXPERTS, GLOBALS, NORMS, WIDTH, count, expect_number, expect_text, if_set, needed,
    norm_epsilon,
};
use crate::family::published::{Family, Key, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["phimoe"],
    mlx: Mlx::Yes(&["phimoe"]),
    architecture: "phimoe",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-5), KEYS],
    magnitudes: true,
    nulls: &["head_dim", "sliding_window"],
    // No key states the distance of near logits, nor that two experts are chosen.
    expects: &[
        expect_text("hidden_act", "silu"),
        expect_number("router_jitter_noise", 0.01),
        expect_number("num_experts_per_tok", 2.0),
    ],
    globals: &[GLOBALS, BIASES],
    layer: &[NORMS, NORM_BIASES, ATTENTION],
    mlps: &[MIXTRAL_EXPERTS],
    ..BASE
};

const KEYS: &[Key] = &[
    count("rope.dimension_count", &["head_dim"], WIDTH),
    count("attention.sliding_window", &["sliding_window"], Or::Count(0)),
];

const BIASES: &[Rule] =
    &[needed("output_norm.bias", "model.norm.bias"), if_set("lm_head_bias", "output.bias", "lm_head.bias")];

const NORM_BIASES: &[Rule] = &[
    needed("blk.{layer}.attn_norm.bias", "model.layers.{layer}.input_layernorm.bias"),
    needed("blk.{layer}.ffn_norm.bias", "model.layers.{layer}.post_attention_layernorm.bias"),
];

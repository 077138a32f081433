//! Phi-3.5-MoE: layer norms with biases, experts as Mixtral's.

use super::llama::{MIXTRAL_EXPERTS, WIDTH};
use super::parts::{
    ATTENTION, COMMON, EXPERTS, GLOBALS, NORMS, count, expect_number, expect_text, needed, number, optional,
};
use super::{Family, Key, Or, Rule};

pub(super) const FAMILY: Family = Family {
    model_types: &["phimoe"],
    architecture: "phimoe",
    keys: &[COMMON, EXPERTS, KEYS],
    nulls: &["head_dim", "sliding_window"],
    rope_base: 10_000.0,
    yarn_truncates: true,
    // No key says how near logits must be to share a token.
    expects: &[expect_text("hidden_act", "silu"), expect_number("router_jitter_noise", 0.01)],
    globals: &[GLOBALS, BIASES],
    layer: &[NORMS, NORM_BIASES, ATTENTION],
    mlps: &[MIXTRAL_EXPERTS],
};

const KEYS: &[Key] = &[
    number("attention.layer_norm_rms_epsilon", &["rms_norm_eps"], Or::Number(1e-5)),
    count("rope.dimension_count", &["head_dim"], WIDTH),
    count("attention.sliding_window", &["sliding_window"], Or::Count(0)),
];

const BIASES: &[Rule] = &[needed("output_norm.bias", "model.norm.bias"), optional("output.bias", "lm_head.bias")];

const NORM_BIASES: &[Rule] = &[
    needed("blk.{layer}.attn_norm.bias", "model.layers.{layer}.input_layernorm.bias"),
    needed("blk.{layer}.ffn_norm.bias", "model.layers.{layer}.post_attention_layernorm.bias"),
];

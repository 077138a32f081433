//! Muse Glimmer within a multimodal model. Layer norms multiply by 1 + weight; the file stores the sum. Queries and
//! keys have norms without weights, and queries have a factor; the file stores both as weights.

use crate::family::gemma3::published::norm;
use crate::family::llama::published::ATTENTION;
use crate::family::parts::{
    BASE, COMMON, INNER, LAYER_TYPES, count, expect_number, expect_text, factor, head_widths, needed, norm_epsilon,
};
use crate::family::published::{Family, Filled, Key, Kind, Mlx, Or, Rule, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["muse_glimmer", "muse_glimmer_text"],
    mlx: Mlx::No,
    architecture: "muse-glimmer",
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(Or::Count(128)), KEYS],
    pre: Some("llama4"),
    special_tokens: &[("eot", "<|eot|>")],
    within: Some(Within {
        settings: "text_config",
        tensors: &[INNER],
        towers: &["model.vision_tower.", "model.vision_adapter.", "model.vision_projection."],
        named: "a tower for images",
    }),
    expects: &[expect_text("hidden_activation", "silu"), expect_number("post_norm_eps", 1e-8)],
    layer: &[NORMS, ATTENTION, GATE],
    filled: &[
        Filled { ours: "blk.{layer}.attn_q_norm.weight", value: Some("qk_scale_factor"), width: "head_dim" },
        Filled { ours: "blk.{layer}.attn_k_norm.weight", value: None, width: "head_dim" },
    ],
    ..BASE
};

const KEYS: &[Key] = &[
    count("attention.sliding_window", &["sliding_window"], Or::Refuse),
    Key { ours: "attention.sliding_window_pattern", theirs: &[LAYER_TYPES], kind: Kind::Windows, or: Or::Refuse },
    factor("final_logit_softcapping", &["final_logit_softcapping"], Or::Refuse),
    factor("logit_scale", &["output_multiplier"], Or::Refuse),
];

const NORMS: &[Rule] = &[
    norm("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    norm("blk.{layer}.post_attention_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
    norm("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.pre_feedforward_layernorm.weight"),
    norm("blk.{layer}.post_ffw_norm.weight", "model.layers.{layer}.post_feedforward_layernorm.weight"),
];

const GATE: &[Rule] = &[needed("blk.{layer}.attn_gate.weight", "model.layers.{layer}.self_attn.gate_proj.weight")];

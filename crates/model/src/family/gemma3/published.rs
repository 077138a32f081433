//! Gemma 3, the text model. Norms multiply by 1 + weight; the file stores the sum.

use crate::family::mistral3;
use crate::family::parts::{
    ATTENTION, BASE, COMMON, INNER, OUTER, count, expect_flag, expect_text, factor, head_widths, needed, norm_epsilon,
    windows,
};
use crate::family::published::{Change, Family, Key, Kind, Mlx, OlderScaling, Or, Rule, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["gemma3_text"],
    mlx: Mlx::Yes(&["gemma3_text"]),
    architecture: "gemma3",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(256)), KEYS],
    beyond: &["sliding_window_pattern", "rope_local_base_freq"],
    base: 1_000_000.0,
    older_scaling: OlderScaling::Updates,
    nulls: &["attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"],
    expects: &[
        expect_text("hidden_activation", "gelu_pytorch_tanh"),
        expect_flag("use_bidirectional_attention", false),
    ],
    globals: &[GLOBALS],
    layer: &[NORMS, QK_NORMS, ATTENTION],
    ..BASE
};

/// Gemma 3 with its vision tower, the text model. Its settings leave out the defaults of transformers' `Gemma3TextConfig`.
pub(crate) const VISION_FAMILY: Family = Family {
    model_types: &["gemma3"],
    mlx: Mlx::No,
    keys: &[COUNTS, &norm_epsilon(1e-6), &head_widths(Or::Count(256)), KEYS],
    within: Some(Within {
        settings: "text_config",
        tensors: &[INNER, OUTER],
        towers: mistral3::published::TOWERS,
        named: "a tower for images",
    }),
    ..FAMILY
};

const COUNTS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Count(26)),
    count("context_length", &["max_position_embeddings"], Or::Count(131_072)),
    count("embedding_length", &["hidden_size"], Or::Count(2304)),
    count("feed_forward_length", &["intermediate_size"], Or::Count(9216)),
    count("attention.head_count", &["num_attention_heads"], Or::Count(8)),
    count("attention.head_count_kv", &["num_key_value_heads"], Or::Count(4)),
];

/// Files imply that attention is scaled by the head width.
pub(crate) const SCALE: Kind = Kind::InverseRootUnless("head_dim");

const KEYS: &[Key] = &[
    Key { ours: "attention.scale", theirs: &["query_pre_attn_scalar"], kind: SCALE, or: Or::Skip },
    count("attention.sliding_window", &["sliding_window"], Or::Refuse),
    windows(6),
    // The check of the file rejects such models.
    factor("attn_logit_softcapping", &["attn_logit_softcapping"], Or::Skip),
    factor("final_logit_softcapping", &["final_logit_softcapping"], Or::Skip),
];

/// A norm weight.
pub(crate) const fn norm(ours: &'static str, theirs: &'static str) -> Rule {
    Rule { change: Change::PlusOne, ..needed(ours, theirs) }
}

/// The output head is the embedding table (tied).
pub(crate) const GLOBALS: &[Rule] =
    &[needed("token_embd.weight", "model.embed_tokens.weight"), norm("output_norm.weight", "model.norm.weight")];

/// The norms before and after attention and MLP.
pub(crate) const NORMS: &[Rule] = &[
    norm("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    norm("blk.{layer}.post_attention_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
    norm("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.pre_feedforward_layernorm.weight"),
    norm("blk.{layer}.post_ffw_norm.weight", "model.layers.{layer}.post_feedforward_layernorm.weight"),
];

const QK_NORMS: &[Rule] = &[
    norm("blk.{layer}.attn_q_norm.weight", "model.layers.{layer}.self_attn.q_norm.weight"),
    norm("blk.{layer}.attn_k_norm.weight", "model.layers.{layer}.self_attn.k_norm.weight"),
];

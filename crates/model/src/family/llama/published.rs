//! Llama 1 to 3, Mistral, SmolLM2, InternLM 3, and Mixtral with its experts.

use crate::family::parts::{BASE, COMMON, EXPERTS, NORMS, WIDTH, attention, count, head_widths, needed, norm_epsilon};
use crate::family::published::{Family, How, Key, Mlx, Or, Prefix, Rule, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["llama", "mistral"],
    mlx: Mlx::Yes(&["llama", "mistral"]),
    architecture: "llama",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(WIDTH), KEYS],
    nulls: &["head_dim", "sliding_window"],
    layer: &[NORMS, ATTENTION],
    ..BASE
};

/// The text model of Idefics3, SmolVLM and SmolVLM2.
pub(crate) const IDEFICS3: Family = Family {
    model_types: &["idefics3", "smolvlm"],
    mlx: Mlx::No,
    within: Some(Within {
        settings: "text_config",
        tensors: &[Prefix { model: "model.text_model.", others: "" }],
        towers: &["model.vision_model.", "model.connector."],
        named: "a tower for images",
    }),
    ..FAMILY
};

pub(crate) const INTERNLM3: Family = Family {
    model_types: &["internlm3"],
    mlx: Mlx::No,
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(WIDTH), KEYS],
    special_tokens: &[("eos", "<|im_end|>")],
    ..FAMILY
};

pub(crate) const MIXTRAL: Family = Family {
    model_types: &["mixtral"],
    mlx: Mlx::Yes(&["mixtral"]),
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-5), &head_widths(Or::Skip), KEYS],
    mlps: &[MIXTRAL_EXPERTS],
    ..FAMILY
};

pub(crate) const KEYS: &[Key] = &[
    count("rope.dimension_count", &["head_dim"], WIDTH),
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("attention.sliding_window", &["sliding_window"], Or::Skip),
];

/// Attention whose query and key rows are reordered to interleaved RoPE pairs.
pub(crate) const ATTENTION: &[Rule] =
    &attention(How::PairRows(&["num_attention_heads"]), How::PairRows(&["num_key_value_heads", "num_attention_heads"]));

pub(crate) const MIXTRAL_EXPERTS: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.block_sparse_moe.gate.weight"),
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"),
];

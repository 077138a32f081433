//! Llama 1 to 3, Mistral, SmolLM2; Mixtral with its experts.

use super::parts::{COMMON, DENSE, EXPERTS, GLOBALS, NORMS, count, expect_text, needed, number, optional};
use super::{Family, How, Key, Or, Rule};

pub(super) const FAMILY: Family = Family {
    model_types: &["llama", "mistral"],
    architecture: "llama",
    keys: &[COMMON, KEYS],
    nulls: &["head_dim", "sliding_window"],
    rope_base: 10_000.0,
    yarn_truncates: true,
    expects: &[expect_text("hidden_act", "silu")],
    globals: &[GLOBALS],
    layer: &[NORMS, ATTENTION],
    mlps: &[DENSE],
};

pub(super) const MIXTRAL: Family = Family {
    model_types: &["mixtral"],
    keys: &[COMMON, EXPERTS, MIXTRAL_KEYS],
    rope_base: 1_000_000.0,
    mlps: &[MIXTRAL_EXPERTS],
    ..FAMILY
};

/// The width of a head.
pub(super) const WIDTH: Or = Or::Quotient("hidden_size", "num_attention_heads");

const KEYS: &[Key] = &[
    number("attention.layer_norm_rms_epsilon", &["rms_norm_eps"], Or::Number(1e-6)),
    count("attention.key_length", &["head_dim"], WIDTH),
    count("attention.value_length", &["head_dim"], WIDTH),
    count("rope.dimension_count", &["head_dim"], WIDTH),
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("attention.sliding_window", &["sliding_window"], Or::Skip),
];

const MIXTRAL_KEYS: &[Key] = &[
    number("attention.layer_norm_rms_epsilon", &["rms_norm_eps"], Or::Number(1e-5)),
    count("attention.key_length", &["head_dim"], Or::Skip),
    count("attention.value_length", &["head_dim"], Or::Skip),
    count("rope.dimension_count", &["head_dim"], WIDTH),
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("attention.sliding_window", &["sliding_window"], Or::Skip),
];

const Q: How = How::PairRows(&["num_attention_heads"]);
const K: How = How::PairRows(&["num_key_value_heads", "num_attention_heads"]);

/// Attention whose queries and keys are turned as neighbours.
pub(super) const ATTENTION: &[Rule] = &[
    Rule { how: Q, ..needed("blk.{layer}.attn_q.weight", "model.layers.{layer}.self_attn.q_proj.weight") },
    Rule { how: Q, ..optional("blk.{layer}.attn_q.bias", "model.layers.{layer}.self_attn.q_proj.bias") },
    Rule { how: K, ..needed("blk.{layer}.attn_k.weight", "model.layers.{layer}.self_attn.k_proj.weight") },
    Rule { how: K, ..optional("blk.{layer}.attn_k.bias", "model.layers.{layer}.self_attn.k_proj.bias") },
    needed("blk.{layer}.attn_v.weight", "model.layers.{layer}.self_attn.v_proj.weight"),
    optional("blk.{layer}.attn_v.bias", "model.layers.{layer}.self_attn.v_proj.bias"),
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.self_attn.o_proj.weight"),
    optional("blk.{layer}.attn_output.bias", "model.layers.{layer}.self_attn.o_proj.bias"),
];

pub(super) const MIXTRAL_EXPERTS: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.block_sparse_moe.gate.weight"),
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"),
];

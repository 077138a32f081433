//! Llama 1 to 3, Mistral, SmolLM2; Mixtral with its experts.

use super::parts::{COMMON, DENSE, EXPERTS, GLOBALS, NORMS, count, expect_text, needed, number, optional};
use super::{Family, How, Key, Need, Or, Rule};

pub(super) const FAMILY: Family = Family {
    model_types: &["llama", "mistral"],
    architecture: "llama",
    keys: &[COMMON, KEYS],
    rope_base: 10_000.0,
    expects: &[expect_text("hidden_act", "silu")],
    globals: GLOBALS,
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

const WIDTH: Or = Or::Quotient("hidden_size", "num_attention_heads");

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

const ATTENTION: &[Rule] = &[
    Rule {
        ours: "blk.{layer}.attn_q.weight",
        theirs: "model.layers.{layer}.self_attn.q_proj.weight",
        how: Q,
        need: Need::Always,
    },
    Rule {
        ours: "blk.{layer}.attn_q.bias",
        theirs: "model.layers.{layer}.self_attn.q_proj.bias",
        how: Q,
        need: Need::IfThere,
    },
    Rule {
        ours: "blk.{layer}.attn_k.weight",
        theirs: "model.layers.{layer}.self_attn.k_proj.weight",
        how: K,
        need: Need::Always,
    },
    Rule {
        ours: "blk.{layer}.attn_k.bias",
        theirs: "model.layers.{layer}.self_attn.k_proj.bias",
        how: K,
        need: Need::IfThere,
    },
    needed("blk.{layer}.attn_v.weight", "model.layers.{layer}.self_attn.v_proj.weight"),
    optional("blk.{layer}.attn_v.bias", "model.layers.{layer}.self_attn.v_proj.bias"),
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.self_attn.o_proj.weight"),
    optional("blk.{layer}.attn_output.bias", "model.layers.{layer}.self_attn.o_proj.bias"),
];

const MIXTRAL_EXPERTS: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.block_sparse_moe.gate.weight"),
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"),
];

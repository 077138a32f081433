//! LFM2, dense or with experts after the first layers. Most layers are short convolutions between two gates; the others
//! have attention.

use crate::family::parts::{BASE, EXPERTS, INNER, attention, count, expect_flag, needed, number, unless_unset};
use crate::family::published::{Family, How, Key, Kind, Layout, Mlx, Need, Or, Rule, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["lfm2"],
    mlx: Mlx::Changed(&["lfm2"]),
    architecture: "lfm2",
    keys: &[KEYS, DENSE_KEYS],
    beyond: &["tie_embedding", "block_ff_dim"],
    nulls: &["full_attn_idxs"],
    pre: Some("lfm2"),
    expects: &[expect_flag("conv_bias", false)],
    globals: &[GLOBALS],
    layer: &[NORMS],
    mixers: &[CONVOLUTION, ATTENTION],
    mlps: &[DENSE],
    ..BASE
};

pub(crate) const EXPERTS_FAMILY: Family = Family {
    model_types: &["lfm2_moe"],
    mlx: Mlx::Changed(&["lfm2_moe"]),
    architecture: "lfm2moe",
    keys: &[KEYS, EXPERTS, EXPERT_KEYS],
    layer: &[NORMS, BIAS],
    mlps: &[MOE, DENSE, RENAMED],
    ..FAMILY
};

/// LFM2-VL, the text model.
pub(crate) const VISION_FAMILY: Family = Family {
    model_types: &["lfm2_vl"],
    mlx: Mlx::No,
    within: Some(Within {
        settings: "text_config",
        tensors: &[INNER],
        towers: &["model.vision_tower.", "model.multi_modal_projector."],
        named: "a tower for images",
    }),
    ..FAMILY
};

/// Layers that have no KV heads.
const CONVOLVED: Kind = Kind::CountUnlessLayer("conv");

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    Key { ours: "attention.head_count_kv", theirs: &["num_key_value_heads"], kind: CONVOLVED, or: Or::Refuse },
    number("attention.layer_norm_rms_epsilon", &["norm_eps"], Or::Number(1e-5)),
    count("shortconv.l_cache", &["conv_L_cache"], Or::Count(3)),
    count("vocab_size", &["vocab_size"], Or::Refuse),
];

const DENSE_KEYS: &[Key] = &[Key {
    ours: "feed_forward_length",
    theirs: &["block_ff_dim", "intermediate_size"],
    kind: Kind::AdjustedWidth,
    or: Or::Refuse,
}];

const EXPERT_KEYS: &[Key] = &[
    count("feed_forward_length", &["intermediate_size"], Or::Refuse),
    count("leading_dense_block_count", &["num_dense_layers"], Or::Count(2)),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_gating_func", &[], Or::Count(2)),
    Key { ours: "expert_weights_norm", theirs: &["norm_topk_prob"], kind: Kind::Unless(true), or: Or::Flag(true) },
    Key {
        ours: "expert_weights_scale",
        theirs: &["routed_scaling_factor"],
        kind: Kind::NumberUnless(1.0),
        or: Or::Skip,
    },
];

/// The output head is the embedding table, unless the folder has a separate head.
const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "model.embed_tokens.weight"),
    needed("token_embd_norm.weight", "model.embedding_norm.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") },
];

const NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.operator_norm.weight"),
    needed("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.ffn_norm.weight"),
];

const CONVOLUTION: &[Rule] = &[
    Rule {
        stored: Layout::Taps,
        ..needed("blk.{layer}.shortconv.conv.weight", "model.layers.{layer}.conv.conv.weight")
    },
    needed("blk.{layer}.shortconv.in_proj.weight", "model.layers.{layer}.conv.in_proj.weight"),
    needed("blk.{layer}.shortconv.out_proj.weight", "model.layers.{layer}.conv.out_proj.weight"),
];

const ATTENTION: &[Rule] = {
    let [query, _, key, _, value, ..] = attention(How::Same, How::Same);
    &[
        query,
        key,
        value,
        needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.self_attn.out_proj.weight"),
        needed("blk.{layer}.attn_q_norm.weight", "model.layers.{layer}.self_attn.q_layernorm.weight"),
        needed("blk.{layer}.attn_k_norm.weight", "model.layers.{layer}.self_attn.k_layernorm.weight"),
    ]
};

const DENSE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate.weight", "model.layers.{layer}.feed_forward.w1.weight"),
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.feed_forward.w3.weight"),
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.feed_forward.w2.weight"),
];

/// MLX's names for the dense layers of a model with experts.
const RENAMED: &[Rule] = &[
    needed("blk.{layer}.ffn_gate.weight", "model.layers.{layer}.feed_forward.gate_proj.weight"),
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.feed_forward.up_proj.weight"),
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.feed_forward.down_proj.weight"),
];

/// The selection bias of layers with experts.
const BIAS: &[Rule] =
    &[unless_unset("use_expert_bias", "blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.feed_forward.expert_bias")];

const MOE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.feed_forward.gate.weight"),
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.feed_forward.experts.{expert}.w1.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.feed_forward.experts.{expert}.w3.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.feed_forward.experts.{expert}.w2.weight"),
];

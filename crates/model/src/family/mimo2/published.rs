//! MiMo V2-Flash and V2.5: a list states which layers have a window. Layers with a window have other numbers of KV heads, and
//! sinks. V2.5 has queries, keys and values in one matrix, laid out for tensor parallelism.

use crate::family::parts::{
    ATTENTION, BASE, DENSE, LAYER_TYPES, MOE, NORMS, OUTPUT_NORM_HEADS, SELECTION_BIAS, count, expect_flag,
    expect_text, factor, needed, optional, positive, renormalised, sigmoid_router,
};
use crate::family::published::{Expect, Expected, Family, GroupPart, How, Key, Kind, Mlx, Or, Rotated, Rule, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["mimo_v2_flash", "mimo_v2"],
    // Programs that write folders of MLX split the matrix of V2.5.
    mlx: Mlx::Changed(&["mimo_v2_flash", "mimo_v2"]),
    architecture: "mimo2",
    keys: &[KEYS],
    beyond: &[
        LAYOUT,
        "hybrid_layer_pattern",
        "layernorm_epsilon",
        "rope_local_base_freq",
        "scoring_func",
        "sliding_window_size",
        "swa_head_dim",
        "swa_num_attention_heads",
        "swa_num_key_value_heads",
        "swa_v_head_dim",
        "topk_method",
    ],
    names: &[("swa_rope_theta", "rope_local_base_freq")],
    nulls: &["routed_scaling_factor", "attention_value_scale", LAYOUT],
    rotated: Rotated::Part(0.334),
    prediction: &["model.mtp."],
    heads: OUTPUT_NORM_HEADS,
    head_names: &[
        ("model.layers.{layer}.", "model.mtp.layers.{head}."),
        ("post_attention_layernorm", "pre_mlp_layernorm"),
    ],
    windowed_heads: true,
    // The text model is not within an object of the settings, and its tensors have the usual names.
    within: Some(Within {
        settings: "text_config",
        tensors: &[],
        towers: &["visual.", "audio_encoder.", "speech_embeddings."],
        named: "towers for images and sound",
    }),
    expects: &[
        expect_text("hidden_act", "silu"),
        expect_flag("attention_bias", false),
        expect_text("topk_method", "noaux_tc"),
        Expect { setting: LAYOUT, value: Expected::OneOf(&["split", "fused_qkv"]) },
        same("swa_num_attention_heads", "num_attention_heads"),
        same("swa_head_dim", "head_dim"),
        same("swa_v_head_dim", "v_head_dim"),
    ],
    layer: &[NORMS, SINKS, SELECTION_BIAS],
    mixers: &[ATTENTION, FUSED],
    mlps: &[MOE, DENSE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("feed_forward_length", &["intermediate_size"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    Key {
        ours: "attention.head_count_kv",
        theirs: &["num_key_value_heads"],
        kind: Kind::CountsOfFlags { flags: PATTERN, windowed: "swa_num_key_value_heads" },
        or: Or::Refuse,
    },
    count("attention.key_length", &["head_dim"], Or::Refuse),
    count("attention.value_length", &["v_head_dim"], Or::Refuse),
    Key {
        ours: "attention.layer_norm_rms_epsilon",
        theirs: &["layernorm_epsilon", "rms_norm_eps"],
        kind: Kind::Number,
        or: Or::Number(1e-5),
    },
    // The numbers are equal, and include the token's own position, as in the authors' code.
    count("attention.sliding_window", &["sliding_window_size", "sliding_window"], Or::Refuse),
    Key {
        ours: "attention.sliding_window_pattern",
        theirs: &[PATTERN, LAYER_TYPES],
        kind: Kind::WindowNumbers,
        or: Or::Refuse,
    },
    factor("attention.value_scale", &["attention_value_scale"], Or::Skip),
    count("expert_count", &["n_routed_experts"], Or::Refuse),
    count("expert_used_count", &["num_experts_per_tok"], Or::Refuse),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    positive("expert_group_count", &["n_group"]),
    positive("expert_group_used_count", &["topk_group"]),
    sigmoid_router(&["scoring_func"], Or::Count(2)),
    factor("expert_weights_scale", &["routed_scaling_factor"], Or::Skip),
    renormalised(true),
];

/// Whether queries, keys and values are in one matrix. The tensors show it too.
const LAYOUT: &str = "attention_projection_layout";

/// Whether each layer has a window.
const PATTERN: &str = "hybrid_layer_pattern";

const fn same(setting: &'static str, other: &'static str) -> Expect {
    Expect { setting, value: Expected::Same(other) }
}

const SINKS: &[Rule] =
    &[optional("blk.{layer}.attn_sinks.weight", "model.layers.{layer}.self_attn.attention_sink_bias")];

const fn fused(ours: &'static str, part: GroupPart) -> Rule {
    Rule { how: How::Ranked(part), ..needed(ours, "model.layers.{layer}.self_attn.qkv_proj.weight") }
}

/// Attention with queries, keys and values in one matrix.
const FUSED: &[Rule] = &[
    fused("blk.{layer}.attn_q.weight", GroupPart::Queries),
    fused("blk.{layer}.attn_k.weight", GroupPart::Keys),
    fused("blk.{layer}.attn_v.weight", GroupPart::Values),
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.self_attn.o_proj.weight"),
];

//! North-Mini-Code: layers as in Cohere 2. The first layers are dense, the others have experts. If the settings have
//! the epsilon of RMSNorm, the norm is RMSNorm.

use crate::family::cohere2::published::NORM;
use crate::family::parts::{
    ATTENTION, BASE, DENSE, EXPERTS, LAYER_TYPES, MOE, count, expect_number, expect_text, factor, head_widths, number,
};
use crate::family::published::{Family, Key, Kind, Mlx, OlderScaling, Or};

pub(crate) const FAMILY: Family = Family {
    model_types: &["cohere2_moe"],
    mlx: Mlx::No,
    architecture: "cohere2moe",
    keys: &[KEYS, EXPERTS, &head_widths(Or::Count(128))],
    beyond: &["first_k_dense_replace"],
    older_scaling: OlderScaling::Unread,
    nulls: &["rms_norm_eps", "prefix_dense_intermediate_size", "mlp_layer_types"],
    pre: Some("cohere2moe"),
    // The model averages shared experts with the routed ones, which is not implemented.
    expects: &[expect_text("hidden_act", "silu"), expect_number("num_shared_experts", 0.0)],
    layer: &[NORM, ATTENTION],
    mlps: &[MOE, DENSE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("feed_forward_length", &["prefix_dense_intermediate_size", "intermediate_size"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    count("attention.head_count_kv", &["num_key_value_heads"], Or::Same("num_attention_heads")),
    number("attention.layer_norm_rms_epsilon", &["rms_norm_eps"], Or::Skip),
    number("attention.layer_norm_epsilon", &["layer_norm_eps"], Or::Number(1e-5)),
    factor("logit_scale", &["logit_scale"], Or::Number(0.0625)),
    count("attention.sliding_window", &["sliding_window"], Or::Refuse),
    Key {
        ours: "attention.sliding_window_pattern",
        theirs: &[LAYER_TYPES, "sliding_window_pattern"],
        kind: Kind::WindowsAfterDense,
        or: Or::Refuse,
    },
    count("vocab_size", &["vocab_size"], Or::Refuse),
    Key {
        ours: "leading_dense_block_count",
        theirs: &["mlp_layer_types", "first_k_dense_replace"],
        kind: Kind::CountOrFirst("dense"),
        or: Or::Count(0),
    },
    count("expert_feed_forward_length", &["intermediate_size"], Or::Refuse),
    Key {
        ours: "expert_gating_func",
        theirs: &["expert_selection_fn"],
        kind: Kind::Named(&[("softmax", 1), ("sigmoid", 2)]),
        or: Or::Count(1),
    },
    Key { ours: "expert_weights_norm", theirs: &["norm_topk_prob"], kind: Kind::Flag, or: Or::Flag(true) },
    count("rope.dimension_count", &["head_dim"], Or::Count(128)),
    Key { ours: "rope.scaling.type", theirs: &[], kind: Kind::Flag, or: Or::Text("none") },
];

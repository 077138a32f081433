//! GLM-4.5 to 4.7: the first layers are dense. The others have a shared expert, and experts routed by sigmoid with a
//! selection bias. GLM-4.5V and 4.6V have it within a multimodal model.

use crate::family::parts::{
    ATTENTION, BASE, BESIDE_TOWER, COMMON, DENSE, EXPERTS, HEADS, MOE, OPTIONAL_QK_NORMS, POST_ATTENTION_NORMS, ROUTED,
    SELECTION_BIAS, SHARED_EXPERTS, WIDTH, count, head_widths, norm_epsilon,
};
use crate::family::published::{Family, Key, Kind, Mlx, Or, Rotated};

pub(crate) const FAMILY: Family = Family {
    model_types: &["glm4_moe"],
    mlx: Mlx::Yes(&["glm4_moe"]),
    mlx_settings: &["rope_scaling"],
    architecture: "glm4moe",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-5), &head_widths(WIDTH), ROUTED, KEYS],
    nulls: &["head_dim"],
    rotated: Rotated::Part(0.5),
    pre: Some("glm4"),
    special_tokens: &[
        ("bos", "[gMASK]"),
        ("eot", "<|user|>"),
        ("unknown", "<|endoftext|>"),
        ("eom", "<|observation|>"),
    ],
    heads: HEADS,
    layer: &[POST_ATTENTION_NORMS, ATTENTION, OPTIONAL_QK_NORMS, SELECTION_BIAS, SHARED_EXPERTS],
    mlps: &[MOE, DENSE],
    ..BASE
};

pub(crate) const WITHIN: Family = Family {
    model_types: &["glm4v_moe", "glm4v_moe_text"],
    mlx: Mlx::No,
    mlx_settings: &[],
    sections: Some([8, 12, 12]),
    within: Some(BESIDE_TOWER),
    ..FAMILY
};

const KEYS: &[Key] = &[
    count("expert_gating_func", &[], Or::Count(2)),
    Key { ours: "expert_weights_norm", theirs: &["norm_topk_prob"], kind: Kind::Flag, or: Or::Flag(true) },
];

//! dots.llm1: attention as in Qwen 3. The first layers are dense. The others have shared experts, and experts routed by
//! sigmoid with a selection bias.

use crate::family::parts::{
    ATTENTION, BASE, COMMON, DENSE, EXPERTS, LAYER_TYPES, MOE, NORMS, QK_NORMS, ROUTED, SELECTION_BIAS, SHARED_EXPERTS,
    WIDTH, head_widths, norm_epsilon,
};
use crate::family::published::{Family, Key, Kind, Mlx, Or};

pub(crate) const FAMILY: Family = Family {
    model_types: &["dots1"],
    mlx: Mlx::Changed(&["dots1"]),
    architecture: "dots1",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-6), &head_widths(WIDTH), ROUTED, KEYS],
    beyond: &["scoring_func"],
    nulls: &["head_dim"],
    layer: &[NORMS, ATTENTION, QK_NORMS, SELECTION_BIAS, SHARED_EXPERTS],
    mlps: &[MOE, DENSE],
    ..BASE
};

/// Published settings name the routing method, whose scores are sigmoids.
const GATING: Kind = Kind::Named(&[("sigmoid", 2), ("noaux_tc", 2)]);

const KEYS: &[Key] = &[
    Key { ours: "expert_gating_func", theirs: &["scoring_func"], kind: GATING, or: Or::Count(2) },
    Key { ours: "expert_weights_norm", theirs: &["norm_topk_prob"], kind: Kind::Flag, or: Or::Flag(false) },
    Key { ours: "attention.sliding_window_pattern", theirs: &[LAYER_TYPES], kind: Kind::FullAttention, or: Or::Skip },
];

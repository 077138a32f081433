//! Mellum 2: attention and experts as in Qwen 3, with sliding windows.

use crate::family::parts::{
    ATTENTION, BASE, COMMON, EXPERTS, MOE, NORMS, PERIODIC, QK_NORMS, count, head_widths, norm_epsilon, renormalised,
};
use crate::family::published::{Family, Key, Mlx, Or};

pub(crate) const FAMILY: Family = Family {
    model_types: &["mellum"],
    mlx: Mlx::No,
    architecture: "mellum",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-6), &head_widths(Or::Count(128)), KEYS],
    nulls: &["sliding_window"],
    pre: Some("mellum2"),
    prediction: &["mtp."],
    layer: &[NORMS, ATTENTION, QK_NORMS],
    mlps: &[MOE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("attention.sliding_window", &["sliding_window"], Or::Skip),
    PERIODIC,
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    renormalised(true),
];

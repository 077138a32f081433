//! OLMoE: norms of whole query and key rows.

use crate::family::parts::{
    ATTENTION, BASE, COMMON, EXPERTS, MOE, NORMS, QK_NORMS, norm_epsilon, number, renormalised,
};
use crate::family::published::{Family, Key, Mlx, Or};

pub(crate) const FAMILY: Family = Family {
    model_types: &["olmoe"],
    mlx: Mlx::Yes(&["olmoe"]),
    architecture: "olmoe",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-5), KEYS],
    nulls: &["clip_qkv"],
    layer: &[NORMS, ATTENTION, QK_NORMS],
    mlps: &[MOE],
    ..BASE
};

const KEYS: &[Key] = &[number("attention.clamp_kqv", &["clip_qkv"], Or::Skip), renormalised(false)];

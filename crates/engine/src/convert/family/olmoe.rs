//! OLMoE: norms of whole query and key rows.

use super::parts::{ATTENTION, COMMON, EXPERTS, GLOBALS, MOE, NORMS, QK_NORMS, expect_text, number, renormalised};
use super::{Family, Key, Or};

pub(super) const FAMILY: Family = Family {
    model_types: &["olmoe"],
    architecture: "olmoe",
    keys: &[COMMON, EXPERTS, KEYS],
    nulls: &["clip_qkv"],
    rope_base: 10_000.0,
    yarn_truncates: true,
    expects: &[expect_text("hidden_act", "silu")],
    globals: &[GLOBALS],
    layer: &[NORMS, ATTENTION, QK_NORMS],
    mlps: &[MOE],
};

const KEYS: &[Key] = &[
    number("attention.layer_norm_rms_epsilon", &["rms_norm_eps"], Or::Number(1e-5)),
    number("attention.clamp_kqv", &["clip_qkv"], Or::Skip),
    renormalised(false),
];

//! Dense Qwen 2 and 2.5.

use super::parts::{ATTENTION, COMMON, DENSE, GLOBALS, NORMS, expect_flag, expect_text, number};
use super::{Expect, Family, Key, Or};

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen2"],
    architecture: "qwen2",
    keys: &[COMMON, KEYS],
    nulls: &[],
    rope_base: 10_000.0,
    yarn_truncates: true,
    expects: EXPECTS,
    globals: &[GLOBALS],
    layer: &[NORMS, ATTENTION],
    mlps: &[DENSE],
};

/// Keys of all Qwen families.
pub(super) const KEYS: &[Key] = &[number("attention.layer_norm_rms_epsilon", &["rms_norm_eps"], Or::Number(1e-6))];

/// Where a window is used, only layers from `max_window_layers` on have it.
pub(super) const EXPECTS: &[Expect] = &[expect_text("hidden_act", "silu"), expect_flag("use_sliding_window", false)];

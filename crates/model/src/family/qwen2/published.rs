//! Dense Qwen 2 and 2.5.

use crate::family::parts::{BASE, COMMON, expect_flag, expect_text, norm_epsilon};
use crate::family::published::{Family, Mlx};

pub(crate) const FAMILY: Family = Family {
    model_types: &["qwen2"],
    mlx: Mlx::Yes(&["qwen2"]),
    architecture: "qwen2",
    keys: &[COMMON, &norm_epsilon(1e-6)],
    // If a window is used, only layers from `max_window_layers` on have it.
    expects: &[expect_text("hidden_act", "silu"), expect_flag("use_sliding_window", false)],
    ..BASE
};

//! Qwen 3 with experts in every layer.

use crate::family::parts::{COMMON, EXPERTS, MOE, WIDTH, count, head_widths, norm_epsilon, renormalised};
use crate::family::published::{Family, Key, Mlx, Or};
use crate::family::qwen3::published as qwen3;

pub(crate) const FAMILY: Family = Family {
    model_types: &["qwen3_moe"],
    mlx: Mlx::Yes(&["qwen3_moe"]),
    architecture: "qwen3moe",
    // Without the setting, transformers divides the embedding width by the number of heads; for the dense models it
    // does not.
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(WIDTH), EXPERTS, KEYS],
    nulls: &["head_dim"],
    mlps: &[MOE],
    ..qwen3::FAMILY
};

const KEYS: &[Key] = &[count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse), renormalised(true)];

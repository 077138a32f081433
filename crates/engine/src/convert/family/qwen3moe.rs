//! Qwen 3 with experts in every layer.

use super::parts::{ATTENTION, COMMON, EXPERTS, GLOBALS, MOE, NORMS, QK_NORMS, count, renormalised};
use super::qwen2::{EXPECTS, KEYS};
use super::{Family, Key, Or};

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3_moe"],
    architecture: "qwen3moe",
    keys: &[COMMON, KEYS, HEADS, EXPERTS, MORE],
    nulls: &["head_dim"],
    rope_base: 10_000.0,
    yarn_truncates: true,
    expects: EXPECTS,
    globals: &[GLOBALS],
    layer: &[NORMS, ATTENTION, QK_NORMS],
    mlps: &[MOE],
};

/// transformers divides the embedding width where the setting is missing, other than for the dense models.
const HEADS: &[Key] = &[
    count("attention.key_length", &["head_dim"], Or::Quotient("hidden_size", "num_attention_heads")),
    count("attention.value_length", &["head_dim"], Or::Quotient("hidden_size", "num_attention_heads")),
];

const MORE: &[Key] = &[count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse), renormalised(true)];

//! Dense Qwen 3: norms of queries and keys.

use super::parts::{ATTENTION, COMMON, DENSE, GLOBALS, NORMS, QK_NORMS, count};
use super::qwen2::{EXPECTS, KEYS};
use super::{Family, Key, Or};

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3"],
    architecture: "qwen3",
    keys: &[COMMON, KEYS, HEADS],
    nulls: &[],
    rope_base: 10_000.0,
    yarn_truncates: true,
    expects: EXPECTS,
    globals: &[GLOBALS],
    layer: &[NORMS, ATTENTION, QK_NORMS],
    mlps: &[DENSE],
};

/// Heads need not share the embedding width among them.
pub(super) const HEADS: &[Key] = &[
    count("attention.key_length", &["head_dim"], Or::Count(128)),
    count("attention.value_length", &["head_dim"], Or::Count(128)),
];

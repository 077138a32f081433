//! Seed-OSS: biases of queries, keys and values.

use super::Family;
use super::Or;
use super::parts::{ATTENTION, BASE, COMMON, POST_ATTENTION_NORMS, head_widths, norm_epsilon};

pub(super) const FAMILY: Family = Family {
    model_types: &["seed_oss"],
    architecture: "seed_oss",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(128))],
    layer: &[POST_ATTENTION_NORMS, ATTENTION],
    ..BASE
};

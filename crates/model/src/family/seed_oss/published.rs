//! Seed-OSS: biases of queries, keys and values.

use crate::family::parts::{BASE, COMMON, POST_ATTENTION_NORMS, biased, head_widths, norm_epsilon};
use crate::family::published::{Family, How, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["seed_oss"],
    mlx: Mlx::Yes(&["seed_oss"]),
    architecture: "seed_oss",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(128))],
    layer: &[POST_ATTENTION_NORMS, ATTENTION],
    ..BASE
};

const ATTENTION: &[Rule] = &biased(How::Same, How::Same, "attention_bias", "attention_out_bias");

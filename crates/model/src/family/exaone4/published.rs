//! EXAONE 4, dense: norms only after attention and MLP, and norms of queries and keys.

use crate::family::olmo2::published::POST_NORMS;
use crate::family::parts::{ATTENTION, BASE, COMMON, PERIODIC, QK_NORMS, count, head_widths, norm_epsilon};
use crate::family::published::{Family, Key, Mlx, Or};

pub(crate) const FAMILY: Family = Family {
    model_types: &["exaone4"],
    mlx: Mlx::Yes(&["exaone4"]),
    mlx_settings: &["rope_scaling", "sliding_window"],
    mlx_letters: true,
    architecture: "exaone4",
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(Or::Skip), KEYS],
    nulls: &["sliding_window"],
    pre: Some("exaone4"),
    layer: &[POST_NORMS, ATTENTION, QK_NORMS],
    ..BASE
};

const KEYS: &[Key] = &[
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("attention.sliding_window", &["sliding_window"], Or::Skip),
    PERIODIC,
];

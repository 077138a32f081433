//! OLMo 2 and 3: norms only after attention and MLP. OLMo 3 has sliding windows.

use crate::family::parts::{ATTENTION, BASE, COMMON, LAYER_TYPES, QK_NORMS, count, needed, norm_epsilon};
use crate::family::published::{Family, Key, Kind, Mlx, OlderScaling, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["olmo2"],
    mlx: Mlx::Yes(&["olmo2"]),
    architecture: "olmo2",
    keys: &[COMMON, &norm_epsilon(1e-5)],
    pre: Some("dbrx"),
    layer: &[POST_NORMS, ATTENTION, QK_NORMS],
    ..BASE
};

pub(crate) const WINDOWED: Family = Family {
    model_types: &["olmo3"],
    mlx: Mlx::Yes(&["olmo3"]),
    keys: &[COMMON, &norm_epsilon(1e-5), KEYS],
    older_scaling: OlderScaling::Updates,
    nulls: &["sliding_window"],
    ..FAMILY
};

const KEYS: &[Key] = &[count("attention.sliding_window", &["sliding_window"], Or::Skip), WINDOWS];

/// Whether each layer has a sliding window.
pub(crate) const WINDOWS: Key =
    Key { ours: "attention.sliding_window_pattern", theirs: &[LAYER_TYPES], kind: Kind::Windows, or: Or::Skip };

/// Norms after attention and MLP.
pub(crate) const POST_NORMS: &[Rule] = &[
    needed("blk.{layer}.post_attention_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
    needed("blk.{layer}.post_ffw_norm.weight", "model.layers.{layer}.post_feedforward_layernorm.weight"),
];

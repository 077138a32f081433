//! Command R7B and Command A: one norm for attention and MLP, which run in parallel. The published RoPE pairs are
//! interleaved too, so no rows are reordered.

use crate::family::parts::{
    ATTENTION, BASE, COMMON, WIDTH, count, expect_number, expect_text, factor, head_widths, needed, number, windows,
};
use crate::family::published::{Family, Key, Kind, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["cohere2"],
    mlx: Mlx::Yes(&["cohere2"]),
    architecture: "cohere2",
    keys: &[COMMON, &head_widths(Or::Skip), KEYS],
    beyond: &["sliding_window_pattern", "rotary_pct"],
    nulls: &["head_dim"],
    pre: Some("command-r"),
    expects: &[expect_text("hidden_act", "silu"), expect_number("rotary_pct", 1.0)],
    layer: &[NORM, ATTENTION],
    ..BASE
};

const KEYS: &[Key] = &[
    number("attention.layer_norm_epsilon", &["layer_norm_eps"], Or::Number(1e-5)),
    factor("logit_scale", &["logit_scale"], Or::Number(0.0625)),
    count("attention.sliding_window", &["sliding_window"], Or::Refuse),
    windows(4),
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("rope.dimension_count", &["head_dim"], WIDTH),
    Key { ours: "rope.scaling.type", theirs: &[], kind: Kind::Flag, or: Or::Text("none") },
];

/// The common norm of attention and MLP.
pub(crate) const NORM: &[Rule] =
    &[needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight")];

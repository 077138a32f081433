//! Gemma 1. Norms multiply by 1 + weight; the file stores the sum.

use crate::family::gemma3::published::{GLOBALS, norm};
use crate::family::parts::{ATTENTION, BASE, COMMON, expect_flag, head_widths, norm_epsilon};
use crate::family::published::{Expect, Expected, Family, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["gemma"],
    mlx: Mlx::No,
    architecture: "gemma",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(256))],
    special_tokens: &[("eot", "<end_of_turn>")],
    // The settings of the first models have the name of exact GELU but mean the tanh approximation.
    expects: &[
        Expect { setting: "hidden_act", value: Expected::OneOf(&["gelu_pytorch_tanh", "gelu"]) },
        expect_flag("use_bidirectional_attention", false),
    ],
    nulls: &["use_bidirectional_attention"],
    globals: &[GLOBALS],
    layer: &[NORMS, ATTENTION],
    ..BASE
};

const NORMS: &[Rule] = &[
    norm("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    norm("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
];

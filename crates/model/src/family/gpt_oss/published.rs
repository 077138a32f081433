//! gpt-oss: the rows of the experts' gate and up matrices alternate. They are published in MXFP4, or in floats stored
//! column by column. MLX has separate gate and up matrices.

use crate::family::parts::{
    ATTENTION, BASE, COMMON, EXPERTS, POST_ATTENTION_NORMS, count, expect_flag, expect_number, expect_text,
    head_widths, needed, norm_epsilon, windows,
};
use crate::family::published::{Family, How, Key, Layout, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["gpt_oss"],
    mlx: Mlx::Changed(&["gpt_oss"]),
    architecture: "gpt-oss",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-5), &head_widths(Or::Count(64)), KEYS],
    yarn_truncates: false,
    expects: &[
        expect_text("hidden_act", "silu"),
        expect_number("swiglu_limit", 7.0),
        expect_number("swiglu_alpha", 1.702),
        expect_flag("attention_bias", true),
    ],
    layer: &[POST_ATTENTION_NORMS, ATTENTION, SINKS, ROUTER],
    mlps: &[QUANTISED, DENSE, SEPARATE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("attention.sliding_window", &["sliding_window"], Or::Refuse),
    windows(2),
    count("expert_feed_forward_length", &["intermediate_size"], Or::Refuse),
];

const SINKS: &[Rule] = &[needed("blk.{layer}.attn_sinks.weight", "model.layers.{layer}.self_attn.sinks")];

const ROUTER: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.mlp.router.weight"),
    needed("blk.{layer}.ffn_gate_inp.bias", "model.layers.{layer}.mlp.router.bias"),
];

/// Experts, outputs, inputs; gate and up share the outputs dimension.
const GATE: How = How::Interleaved { axis: 1, which: 0 };
const UP: How = How::Interleaved { axis: 1, which: 1 };

const GATE_WEIGHT: Rule = Rule {
    stored: Layout::Mxfp4,
    how: GATE,
    ..needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.mlp.experts.gate_up_proj")
};
const UP_WEIGHT: Rule = Rule { ours: "blk.{layer}.ffn_up_exps.weight", how: UP, ..GATE_WEIGHT };
const DOWN_WEIGHT: Rule = Rule {
    stored: Layout::Mxfp4,
    ..needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.mlp.experts.down_proj")
};

const GATE_BIAS: Rule = Rule {
    how: GATE,
    ..needed("blk.{layer}.ffn_gate_exps.bias", "model.layers.{layer}.mlp.experts.gate_up_proj_bias")
};
const UP_BIAS: Rule = Rule { ours: "blk.{layer}.ffn_up_exps.bias", how: UP, ..GATE_BIAS };
const DOWN_BIAS: Rule = needed("blk.{layer}.ffn_down_exps.bias", "model.layers.{layer}.mlp.experts.down_proj_bias");

const QUANTISED: &[Rule] = &[GATE_WEIGHT, UP_WEIGHT, DOWN_WEIGHT, GATE_BIAS, UP_BIAS, DOWN_BIAS];

const DENSE: &[Rule] = &[
    Rule { stored: Layout::Columns, ..GATE_WEIGHT },
    Rule { stored: Layout::Columns, ..UP_WEIGHT },
    Rule { stored: Layout::Columns, ..DOWN_WEIGHT },
    GATE_BIAS,
    UP_BIAS,
    DOWN_BIAS,
];

/// Separate gate and up matrices, in MLX's folders.
const SEPARATE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.mlp.experts.gate_proj.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.mlp.experts.up_proj.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.mlp.experts.down_proj.weight"),
    needed("blk.{layer}.ffn_gate_exps.bias", "model.layers.{layer}.mlp.experts.gate_proj.bias"),
    needed("blk.{layer}.ffn_up_exps.bias", "model.layers.{layer}.mlp.experts.up_proj.bias"),
    needed("blk.{layer}.ffn_down_exps.bias", "model.layers.{layer}.mlp.experts.down_proj.bias"),
];

//! Qwen 3.5 and 3.6, dense or with experts, within a multimodal model. As Qwen3-Next, with one projection per input of
//! the delta rule. In files, value heads are interleaved over the key heads.

use crate::family::parts::{COMMON, DENSE, EXPERTS, INNER, MOE, OUTER, head_widths, needed, norm_epsilon};
use crate::family::published::{Family, How, Mlx, Or, Rule, ValueHeads, Within};
use crate::family::qwen2moe::published::SHARED;
use crate::family::qwen3next::published as qwen3next;
use crate::family::qwen3next::published::{
    ATTENTION, CONVOLUTION, DECAY, DELTA_KEYS, DELTA_NORM, DELTA_OUTPUT, DT_BIAS, EXPERT_KEYS, NORMS,
};

pub(crate) const FAMILY: Family = Family {
    model_types: &["qwen3_5", "qwen3_5_text"],
    mlx: Mlx::Changed(&["qwen3_5"]),
    architecture: "qwen35",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(256)), DELTA_KEYS],
    sections: Some([11, 11, 10]),
    pre: Some("qwen35"),
    within: Some(Within {
        settings: "text_config",
        tensors: &[INNER, OUTER],
        towers: &["model.visual."],
        named: "a tower for images",
    }),
    layer: &[NORMS],
    mixers: &[DELTA, ATTENTION],
    mlps: &[DENSE],
    ..qwen3next::FAMILY
};

pub(crate) const EXPERTS_FAMILY: Family = Family {
    model_types: &["qwen3_5_moe", "qwen3_5_moe_text"],
    mlx: Mlx::Changed(&["qwen3_5_moe"]),
    architecture: "qwen35moe",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(256)), DELTA_KEYS, EXPERTS, EXPERT_KEYS],
    layer: &[NORMS, SHARED],
    mlps: &[FUSED, MOE],
    ..FAMILY
};

const fn heads(rule: Rule, at: ValueHeads) -> Rule {
    Rule { how: How::ValueHeads(at), ..rule }
}

const fn input(ours: &'static str, theirs: &'static str, at: ValueHeads) -> Rule {
    heads(needed(ours, theirs), at)
}

const DELTA: &[Rule] = &[
    input(
        "blk.{layer}.attn_qkv.weight",
        "model.layers.{layer}.linear_attn.in_proj_qkv.weight",
        ValueHeads::RowsAfterKeys,
    ),
    input("blk.{layer}.attn_gate.weight", "model.layers.{layer}.linear_attn.in_proj_z.weight", ValueHeads::Rows),
    input("blk.{layer}.ssm_beta.weight", "model.layers.{layer}.linear_attn.in_proj_b.weight", ValueHeads::Single),
    input("blk.{layer}.ssm_alpha.weight", "model.layers.{layer}.linear_attn.in_proj_a.weight", ValueHeads::Single),
    heads(CONVOLUTION, ValueHeads::RowsAfterKeys),
    heads(DECAY, ValueHeads::Single),
    heads(DT_BIAS, ValueHeads::Single),
    DELTA_NORM,
    heads(DELTA_OUTPUT, ValueHeads::Columns),
];

const GATE_UP: Rule = needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.mlp.experts.gate_up_proj");

/// Experts as published: one tensor per layer, with gate and up as halves of its matrices.
const FUSED: &[Rule] = &[
    Rule { how: How::Half { axis: 1, which: 0 }, ..GATE_UP },
    Rule { ours: "blk.{layer}.ffn_up_exps.weight", how: How::Half { axis: 1, which: 1 }, ..GATE_UP },
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.mlp.experts.down_proj"),
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.mlp.gate.weight"),
];

//! Qwen3-VL, the text model: Qwen 3 within a multimodal model. The experts of a layer are one tensor, stored column by
//! column, with gate and up as halves.

use crate::family::parts::{self, BESIDE_TOWER, COMMON, EXPERTS, count, head_widths, needed, norm_epsilon};
use crate::family::published::{Family, How, Key, Layout, Mlx, Or, Rule};
use crate::family::qwen3::published as qwen3;

pub(crate) const FAMILY: Family = Family {
    model_types: &["qwen3_vl", "qwen3_vl_text"],
    mlx: Mlx::No,
    architecture: "qwen3vl",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(128))],
    sections: Some([24, 20, 20]),
    within: Some(BESIDE_TOWER),
    ..qwen3::FAMILY
};

pub(crate) const MOE: Family = Family {
    model_types: &["qwen3_vl_moe", "qwen3_vl_moe_text"],
    architecture: "qwen3vlmoe",
    keys: &[COMMON, &norm_epsilon(1e-6), &head_widths(Or::Count(128)), EXPERTS, KEYS],
    mlps: &[FUSED, parts::MOE],
    ..FAMILY
};

const KEYS: &[Key] = &[count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse)];

/// Experts, outputs, inputs; folders of other programs have a tensor for each expert.
const GATE: Rule = Rule {
    stored: Layout::Columns,
    how: How::Half { axis: 1, which: 0 },
    ..needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.mlp.experts.gate_up_proj")
};

const FUSED: &[Rule] = &[
    GATE,
    Rule { ours: "blk.{layer}.ffn_up_exps.weight", how: How::Half { axis: 1, which: 1 }, ..GATE },
    Rule {
        stored: Layout::Columns,
        ..needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.mlp.experts.down_proj")
    },
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.mlp.gate.weight"),
];

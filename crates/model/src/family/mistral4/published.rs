//! Mistral 4: DeepSeek V3's layers within a multimodal model. A softmax routes, gate and up of the experts are one tensor,
//! and queries have a temperature.

use crate::family::deepseek2::published::{ATTENTION, KEYS};
use crate::family::mistral3::published::TOWERS;
use crate::family::parts::{
    BASE, DENSE, EXPERTS, INNER, NORMS, OUTER, ROUTED, SHARED_EXPERTS, expect_flag, expect_text, needed, norm_epsilon,
};
use crate::family::published::{Family, Mlx, Rotated, Rule, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["mistral4"],
    mlx: Mlx::No,
    architecture: "mistral4",
    keys: &[KEYS, EXPERTS, &norm_epsilon(1e-6), ROUTED],
    beyond: &["rope_interleave"],
    nulls: &["q_lora_rank"],
    yarn_scores: true,
    rotated: Rotated::Latent,
    within: Some(Within {
        settings: "text_config",
        tensors: &[OUTER, INNER],
        towers: TOWERS,
        named: "a tower for images",
    }),
    expects: &[expect_text("hidden_act", "silu"), expect_flag("rope_interleave", true)],
    layer: &[NORMS, ATTENTION, SHARED_EXPERTS],
    mlps: &[MOE, DENSE],
    ..BASE
};

const MOE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.mlp.gate.weight"),
    needed("blk.{layer}.ffn_gate_up_exps.weight", "model.layers.{layer}.mlp.experts.gate_up_proj"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.mlp.experts.down_proj"),
];

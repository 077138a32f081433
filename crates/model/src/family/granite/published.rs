//! Granite 3, dense or with experts: as Llama, with factors for embeddings, attention logits, residuals and logits.
//! Gate and up are halves of one matrix.

use crate::family::llama::published::ATTENTION;
use crate::family::parts::{BASE, COMMON, EXPERTS, NORMS, WIDTH, count, factor, needed, norm_epsilon, optional};
use crate::family::published::{Family, How, Key, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["granite"],
    mlx: Mlx::Yes(&["granite"]),
    architecture: "granite",
    keys: &[COMMON, &norm_epsilon(1e-6), KEYS, FACTORS],
    layer: &[NORMS, ATTENTION],
    ..BASE
};

pub(crate) const MOE: Family = Family {
    model_types: &["granitemoe", "granitemoeshared"],
    mlx: Mlx::Changed(&["granitemoe"]),
    architecture: "granitemoe",
    keys: &[COMMON, &norm_epsilon(1e-6), KEYS, FACTORS, EXPERTS, SHARED_KEYS],
    layer: &[NORMS, ATTENTION, SHARED],
    mlps: &[CHOSEN, SEPARATE],
    ..FAMILY
};

pub(crate) const KEYS: &[Key] =
    &[count("rope.dimension_count", &[], WIDTH), count("vocab_size", &["vocab_size"], Or::Refuse)];

/// Factors of attention logits, embeddings and residuals, and the divisor of logits.
pub(crate) const FACTORS: &[Key] = &[
    factor("attention.scale", &["attention_multiplier"], Or::Number(1.0)),
    factor("embedding_scale", &["embedding_multiplier"], Or::Number(1.0)),
    factor("residual_scale", &["residual_multiplier"], Or::Number(1.0)),
    factor("logit_scale", &["logits_scaling"], Or::Number(1.0)),
];

const SHARED_KEYS: &[Key] = &[count("expert_shared_feed_forward_length", &["shared_intermediate_size"], Or::Skip)];

const GATE_UP: Rule =
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.block_sparse_moe.input_linear.weight");

const ROUTER: Rule =
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.block_sparse_moe.router.layer.weight");

pub(crate) const CHOSEN: &[Rule] = &[
    // Experts, outputs, inputs.
    Rule { how: How::Half { axis: 1, which: 0 }, ..GATE_UP },
    Rule { ours: "blk.{layer}.ffn_up_exps.weight", how: How::Half { axis: 1, which: 1 }, ..GATE_UP },
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.block_sparse_moe.output_linear.weight"),
    ROUTER,
];

/// Separate gate and up matrices, in MLX's folders.
const SEPARATE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.block_sparse_moe.switch_mlp.gate_proj.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.block_sparse_moe.switch_mlp.up_proj.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.block_sparse_moe.switch_mlp.down_proj.weight"),
    ROUTER,
];

const SHARED_GATE_UP: Rule =
    optional("blk.{layer}.ffn_gate_shexp.weight", "model.layers.{layer}.shared_mlp.input_linear.weight");

/// The shared expert's tensors, if the settings have a width for them.
pub(crate) const SHARED: &[Rule] = &[
    Rule { how: How::Half { axis: 0, which: 0 }, ..SHARED_GATE_UP },
    Rule { ours: "blk.{layer}.ffn_up_shexp.weight", how: How::Half { axis: 0, which: 1 }, ..SHARED_GATE_UP },
    optional("blk.{layer}.ffn_down_shexp.weight", "model.layers.{layer}.shared_mlp.output_linear.weight"),
];

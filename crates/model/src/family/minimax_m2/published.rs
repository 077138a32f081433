//! MiniMax M2: every layer has experts routed by sigmoid with a selection bias, and norms over all heads.

use crate::family::llama::published::MIXTRAL_EXPERTS;
use crate::family::parts::{
    ATTENTION, BASE, COMMON, EXPERTS, NORMS, QK_NORMS, count, head_widths, norm_epsilon, optional, sigmoid_router,
};
use crate::family::published::{Family, Key, Mlx, Or, Rotated, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["minimax_m2"],
    mlx: Mlx::Yes(&["minimax_m2"]),
    architecture: "minimax-m2",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-6), &head_widths(Or::Count(128)), KEYS],
    beyond: &["rotary_dim", "scoring_func"],
    rotated: Rotated::Part(1.0),
    layer: &[NORMS, ATTENTION, QK_NORMS, BIAS],
    mlps: &[MIXTRAL_EXPERTS],
    ..BASE
};

const KEYS: &[Key] = &[
    count("expert_feed_forward_length", &["intermediate_size"], Or::Refuse),
    sigmoid_router(&["scoring_func"], Or::Count(2)),
];

const BIAS: &[Rule] =
    &[optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.block_sparse_moe.e_score_correction_bias")];

//! K-EXAONE: attention as in EXAONE 4, with norms before the blocks. The first layers are dense. The others have a
//! shared expert, and experts routed by sigmoid with a selection bias.

use crate::family::parts::{
    ATTENTION, BASE, COMMON, DENSE, EXPERTS, MOE, NORMS, PERIODIC, QK_NORMS, SELECTION_BIAS, SHARED_EXPERTS, count,
    factor, head_widths, norm_epsilon, optional, positive, sigmoid_router,
};
use crate::family::published::{Family, Key, Kind, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["exaone_moe"],
    mlx: Mlx::Changed(&["exaone_moe"]),
    architecture: "exaone-moe",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-5), &head_widths(Or::Skip), KEYS],
    beyond: &["scoring_func", "first_last_k_dense_replace"],
    nulls: &["sliding_window"],
    prediction: &["mtp."],
    layer: &[NORMS, ATTENTION, QK_NORMS, BIAS, SELECTION_BIAS, SHARED_EXPERTS],
    mlps: &[MOE, DENSE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("attention.sliding_window", &["sliding_window"], Or::Skip),
    PERIODIC,
    positive("expert_group_count", &["n_group"]),
    positive("expert_group_used_count", &["topk_group"]),
    count("leading_dense_block_count", &["first_k_dense_replace", "first_last_k_dense_replace"], Or::Count(0)),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["num_shared_experts"], Or::Refuse),
    count("expert_shared_feed_forward_length", &[], Or::Product("moe_intermediate_size", "num_shared_experts")),
    factor("expert_weights_scale", &["routed_scaling_factor"], Or::Number(1.0)),
    Key { ours: "expert_weights_norm", theirs: &["norm_topk_prob"], kind: Kind::Flag, or: Or::Flag(true) },
    sigmoid_router(&["scoring_func"], Or::Count(2)),
    // The layers for multi-token prediction (MTP) are left out.
    count("nextn_predict_layers", &[], Or::Count(0)),
];

/// MLX's folders have [`SELECTION_BIAS`] instead.
const BIAS: &[Rule] = &[optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.mlp.e_score_correction_bias")];

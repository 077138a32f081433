//! ERNIE 4.5 with experts. The first layers are dense. The others have shared experts, and experts routed by softmax
//! with a selection bias. The published RoPE pairs are interleaved too, so no rows are reordered.

use crate::family::parts::{
    BASE, COMMON, DENSE, EXPERT_COUNT, MOE, NORMS, SHARED_EXPERTS, WIDTH, biased, count, head_widths, norm_epsilon,
    optional,
};
use crate::family::published::{Family, How, Key, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["ernie4_5_moe"],
    mlx: Mlx::Changed(&["ernie4_5_moe"]),
    architecture: "ernie4_5-moe",
    keys: &[COMMON, &norm_epsilon(1e-5), &head_widths(WIDTH), KEYS],
    nulls: &["head_dim"],
    prediction: &["model.mtp_"],
    layer: &[NORMS, ATTENTION, BIAS, SHARED_EXPERTS],
    mlps: &[MOE, DENSE],
    ..BASE
};

const ATTENTION: &[Rule] = &biased(How::Same, How::Same, "use_bias", "use_bias");

const KEYS: &[Key] = &[
    count("expert_count", EXPERT_COUNT, Or::Refuse),
    count("expert_used_count", &["moe_k"], Or::Refuse),
    count("interleave_moe_layer_step", &["moe_layer_interval"], Or::Count(1)),
    count("leading_dense_block_count", &["moe_layer_start_index"], Or::Count(1)),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["moe_num_shared_experts"], Or::Refuse),
    count("expert_shared_feed_forward_length", &[], Or::Product("moe_num_shared_experts", "moe_intermediate_size")),
];

const BIAS: &[Rule] =
    &[optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.mlp.moe_statics.e_score_correction_bias")];

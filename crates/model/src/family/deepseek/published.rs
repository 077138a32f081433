//! The first DeepSeek MoE: the first layers are dense, the others have shared and routed experts.

use crate::family::llama::published::ATTENTION;
use crate::family::parts::{
    BASE, COMMON, DENSE, EXPERTS, MOE, NORMS, SHARED_EXPERTS, WIDTH, count, expect_number, expect_text, factor,
    head_widths, norm_epsilon, renormalised,
};
use crate::family::published::{Family, Key, Kind, Mlx, Or};

pub(crate) const FAMILY: Family = Family {
    model_types: &["deepseek"],
    mlx: Mlx::Yes(&["deepseek"]),
    architecture: "deepseek",
    keys: &[COMMON, EXPERTS, &norm_epsilon(1e-6), &head_widths(Or::Skip), KEYS],
    nulls: &["head_dim", "n_shared_experts"],
    expects: &[expect_text("hidden_act", "silu"), expect_number("moe_layer_freq", 1.0)],
    layer: &[NORMS, ATTENTION, SHARED_EXPERTS],
    mlps: &[MOE, DENSE],
    ..BASE
};

/// The values are those of GGUF.
const GATING: Kind = Kind::Named(&[("softmax", 1)]);

const KEYS: &[Key] = &[
    count("rope.dimension_count", &["head_dim"], WIDTH),
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("leading_dense_block_count", &["first_k_dense_replace"], Or::Count(0)),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["n_shared_experts"], Or::Skip),
    factor("expert_weights_scale", &["routed_scaling_factor"], Or::Number(1.0)),
    Key { ours: "expert_gating_func", theirs: &["scoring_func"], kind: GATING, or: Or::Skip },
    renormalised(false),
];

//! Ling 3: delta rules in which each element of a key has a gate with a bound, and latent attention with a gate for each
//! head. The first layers are dense. The others have a shared expert, and experts routed by sigmoid with a selection
//! bias in the best groups.

use crate::family::kimi_linear::published::{DELTA_HEADS, DELTA_KEYS, LATENT_KEYS, LAYERS, LEADING_DENSE};
use crate::family::parts::{
    BASE, DENSE, FINAL_NORM_HEADS, MOE, NORMS, SHARED_EXPERTS, count, expect_flag, expect_text, factor, needed,
    norm_epsilon, number, optional, positive, sigmoid_router,
};
use crate::family::published::{Change, Expect, Expected, Family, How, Key, Kind, Layout, Mlx, Need, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["bailing_hybrid"],
    mlx: Mlx::No,
    architecture: "bailingmoe3",
    keys: &[LAYERS, LATENT_KEYS, DELTA_KEYS, KEYS, &norm_epsilon(1e-6)],
    beyond: &[
        "linear_head_dim",
        "linear_num_heads",
        "linear_conv_kernel_dim",
        "no_kda_lora",
        "linear_attention",
        "score_function",
        "gated_attention_proj_granularity_type",
        "moe_shared_expert_intermediate_size",
        ROUTED_LIMITS,
        SHARED_LIMITS,
    ],
    nulls: &["q_lora_rank", "mlp_layer_types", "moe_shared_expert_intermediate_size", ROUTED_LIMITS, SHARED_LIMITS],
    pre: Some("bailingmoe2"),
    yarn_scores: true,
    expects: &[
        DELTA_HEADS,
        expect_text("hidden_act", "silu"),
        // Ling 2.5 has the same type.
        expect_text("linear_attention", "kda"),
        expect_flag("no_kda_lora", true),
        expect_flag("kda_safe_gate", true),
        expect_text("gated_attention_proj_granularity_type", "head_wise"),
        // Activations of experts are not clamped.
        Expect { setting: ROUTED_LIMITS, value: Expected::Zeros },
        Expect { setting: SHARED_LIMITS, value: Expected::Zeros },
    ],
    heads: FINAL_NORM_HEADS,
    globals: &[GLOBALS],
    layer: &[NORMS, SELECTION_BIAS, SHARED_EXPERTS],
    mixers: &[DELTA, LATENT],
    mlps: &[MOE, DENSE],
    ..BASE
};

const ROUTED_LIMITS: &str = "expert_swiglu_limit_list";
const SHARED_LIMITS: &str = "share_expert_swiglu_limit_list";

const KEYS: &[Key] = &[
    Key { ours: "kda.safe_gate", theirs: &["kda_safe_gate"], kind: Kind::Flag, or: Or::Flag(true) },
    number("kda.gate_lower_bound", &["kda_lower_bound"], Or::Number(-5.0)),
    count("expert_count", &["num_local_experts", "num_experts"], Or::Refuse),
    count("expert_used_count", &["num_experts_per_tok", "num_experts_per_token"], Or::Refuse),
    positive("expert_group_count", &["n_group", "num_expert_group"]),
    positive("expert_group_used_count", &["topk_group"]),
    Key { or: Or::Refuse, ..LEADING_DENSE },
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["n_shared_experts", "num_shared_experts"], Or::Count(1)),
    count("expert_shared_feed_forward_length", &["moe_shared_expert_intermediate_size"], Or::Skip),
    factor("expert_weights_scale", &["routed_scaling_factor"], Or::Number(1.0)),
    Key {
        ours: "expert_weights_norm",
        theirs: &["norm_topk_prob", "moe_renormalize"],
        kind: Kind::Flag,
        or: Or::Flag(true),
    },
    sigmoid_router(&["score_function"], Or::Count(2)),
];

const GLOBALS: &[Rule] = &[
    needed("token_embd.weight", "model.word_embeddings.weight"),
    needed("output_norm.weight", "model.norm.weight"),
    Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") },
];

const fn taps(ours: &'static str, theirs: &'static str) -> Rule {
    Rule { stored: Layout::TapsOfChannels, ..needed(ours, theirs) }
}

const DELTA: &[Rule] = &[
    taps("blk.{layer}.ssm_conv1d_q.weight", "model.layers.{layer}.attention.q_conv1d.weight"),
    taps("blk.{layer}.ssm_conv1d_k.weight", "model.layers.{layer}.attention.k_conv1d.weight"),
    taps("blk.{layer}.ssm_conv1d_v.weight", "model.layers.{layer}.attention.v_conv1d.weight"),
    needed("blk.{layer}.attn_q.weight", "model.layers.{layer}.attention.q_proj.weight"),
    needed("blk.{layer}.attn_k.weight", "model.layers.{layer}.attention.k_proj.weight"),
    needed("blk.{layer}.attn_v.weight", "model.layers.{layer}.attention.v_proj.weight"),
    needed("blk.{layer}.ssm_f_a.weight", "model.layers.{layer}.attention.f_proj.weight"),
    needed("blk.{layer}.ssm_dt.bias", "model.layers.{layer}.attention.dt_bias"),
    Rule { change: Change::Exp, ..needed("blk.{layer}.ssm_a", "model.layers.{layer}.attention.A_log") },
    needed("blk.{layer}.ssm_beta.weight", "model.layers.{layer}.attention.b_proj.weight"),
    needed("blk.{layer}.ssm_g_a.weight", "model.layers.{layer}.attention.g_proj.weight"),
    needed("blk.{layer}.ssm_norm.weight", "model.layers.{layer}.attention.o_norm.weight"),
    optional("blk.{layer}.attn_output.weight", "model.layers.{layer}.attention.o_proj.weight"),
    // transformers saves it under the name that it has in the other layers.
    optional("blk.{layer}.attn_output.weight", "model.layers.{layer}.attention.dense.weight"),
];

const LATENT: &[Rule] = &[
    needed("blk.{layer}.attn_kv_a_mqa.weight", "model.layers.{layer}.attention.kv_a_proj_with_mqa.weight"),
    optional("blk.{layer}.attn_q.weight", "model.layers.{layer}.attention.q_proj.weight"),
    optional("blk.{layer}.attn_q_a.weight", "model.layers.{layer}.attention.q_a_proj.weight"),
    optional("blk.{layer}.attn_q_a_norm.weight", "model.layers.{layer}.attention.q_a_layernorm.weight"),
    optional("blk.{layer}.attn_q_b.weight", "model.layers.{layer}.attention.q_b_proj.weight"),
    needed("blk.{layer}.attn_kv_a_norm.weight", "model.layers.{layer}.attention.kv_a_layernorm.weight"),
    Rule { how: How::LatentKeys, ..needed("blk.{layer}.attn_k_b.weight", KV_B) },
    Rule { how: How::LatentValues, ..needed("blk.{layer}.attn_v_b.weight", KV_B) },
    needed("blk.{layer}.attn_gate.weight", "model.layers.{layer}.attention.g_proj.weight"),
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.attention.dense.weight"),
];

const KV_B: &str = "model.layers.{layer}.attention.kv_b_proj.weight";

const SELECTION_BIAS: &[Rule] =
    &[optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.mlp.gate.expert_bias")];

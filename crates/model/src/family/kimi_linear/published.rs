//! Kimi Linear: delta rules in which each element of a key has a gate, and latent attention without RoPE. The first
//! layers are dense. The others have a shared expert, and experts routed by sigmoid with a selection bias.

use crate::family::parts::{
    BASE, DENSE, NORMS, count, expect_flag, expect_number, expect_text, factor, needed, norm_epsilon, optional,
    positive, sigmoid_router,
};
use crate::family::published::{Change, Expect, Expected, Family, How, Key, Kind, Layout, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["kimi_linear"],
    mlx: Mlx::No,
    architecture: "kimi-linear",
    keys: &[LAYERS, LATENT_KEYS, DELTA_KEYS, EXPERT_KEYS, &norm_epsilon(1e-5)],
    beyond: &[FULL_LAYERS, "moe_router_activation_func", "first_k_dense_replace", "moe_layer_freq", "mla_use_nope"],
    // Those of the inner object have other names in transformers.
    names: &[
        ("head_dim", "linear_head_dim"),
        ("num_heads", "linear_num_heads"),
        ("short_conv_kernel_size", "linear_conv_kernel_dim"),
    ],
    nulls: &["q_lora_rank", "mlp_layer_types"],
    inner: Some("linear_attn_config"),
    expects: &[
        DELTA_HEADS,
        expect_text("hidden_act", "silu"),
        expect_flag("mla_use_nope", true),
        expect_flag("norm_topk_prob", true),
        expect_flag("moe_renormalize", true),
        expect_number("moe_layer_freq", 1.0),
        expect_number("n_group", 1.0),
    ],
    layer: &[NORMS],
    mixers: &[DELTA, LATENT],
    mlps: &[MOE, DENSE, SAVED_DENSE],
    ..BASE
};

/// The layers with latent attention, from 1.
const FULL_LAYERS: &str = "full_attn_layers";

/// Keys of every layer. Layers with a delta rule have no KV heads, and the others share one.
pub(crate) const LAYERS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings", "model_max_length"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("feed_forward_length", &["intermediate_size"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    Key {
        ours: "attention.head_count_kv",
        theirs: &["num_hidden_layers"],
        kind: Kind::OneUnlessLayer("linear_attention"),
        or: Or::Refuse,
    },
];

/// Keys of latent attention.
pub(crate) const LATENT_KEYS: &[Key] = &[
    count("attention.q_lora_rank", &["q_lora_rank"], Or::Skip),
    count("attention.kv_lora_rank", &["kv_lora_rank"], Or::Refuse),
    count("attention.key_length", &[], Or::Sum("kv_lora_rank", "qk_rope_head_dim")),
    count("attention.key_length_mla", &[], Or::Sum("qk_nope_head_dim", "qk_rope_head_dim")),
    count("attention.value_length_mla", &["v_head_dim"], Or::Refuse),
    count("rope.dimension_count", &["qk_rope_head_dim"], Or::Refuse),
];

/// Keys of the delta rule.
pub(crate) const DELTA_KEYS: &[Key] = &[
    count("kda.head_dim", &["linear_head_dim", "head_dim"], Or::Count(128)),
    count("ssm.conv_kernel", &["linear_conv_kernel_dim", "short_conv_kernel_size"], Or::Count(4)),
];

/// Files have one number of heads for all layers.
pub(crate) const DELTA_HEADS: Expect =
    Expect { setting: "linear_num_heads", value: Expected::Same("num_attention_heads") };

/// The number of dense layers, which precede all others, or a list of the kinds of layers.
pub(crate) const LEADING_DENSE: Key = Key {
    ours: "leading_dense_block_count",
    theirs: &["mlp_layer_types", "first_k_dense_replace"],
    kind: Kind::CountOrFirst("dense"),
    or: Or::Count(1),
};

const EXPERT_KEYS: &[Key] = &[
    count("expert_count", &["num_local_experts", "num_experts"], Or::Refuse),
    count("expert_used_count", &["num_experts_per_tok", "num_experts_per_token"], Or::Refuse),
    positive("expert_group_used_count", &["topk_group"]),
    LEADING_DENSE,
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["n_shared_experts", "num_shared_experts"], Or::Skip),
    factor("expert_weights_scale", &["routed_scaling_factor"], Or::Number(1.0)),
    sigmoid_router(&["moe_router_activation_func"], Or::Count(2)),
];

const fn taps(ours: &'static str, theirs: &'static str) -> Rule {
    Rule { stored: Layout::TapsOfChannels, ..needed(ours, theirs) }
}

const DELTA: &[Rule] = &[
    taps("blk.{layer}.ssm_conv1d_q.weight", "model.layers.{layer}.self_attn.q_conv1d.weight"),
    taps("blk.{layer}.ssm_conv1d_k.weight", "model.layers.{layer}.self_attn.k_conv1d.weight"),
    taps("blk.{layer}.ssm_conv1d_v.weight", "model.layers.{layer}.self_attn.v_conv1d.weight"),
    needed("blk.{layer}.attn_q.weight", "model.layers.{layer}.self_attn.q_proj.weight"),
    needed("blk.{layer}.attn_k.weight", "model.layers.{layer}.self_attn.k_proj.weight"),
    needed("blk.{layer}.attn_v.weight", "model.layers.{layer}.self_attn.v_proj.weight"),
    needed("blk.{layer}.ssm_f_a.weight", "model.layers.{layer}.self_attn.f_a_proj.weight"),
    needed("blk.{layer}.ssm_f_b.weight", "model.layers.{layer}.self_attn.f_b_proj.weight"),
    needed("blk.{layer}.ssm_dt.bias", "model.layers.{layer}.self_attn.dt_bias"),
    Rule { change: Change::MinusExp, ..needed("blk.{layer}.ssm_a", "model.layers.{layer}.self_attn.A_log") },
    needed("blk.{layer}.ssm_beta.weight", "model.layers.{layer}.self_attn.b_proj.weight"),
    needed("blk.{layer}.ssm_g_a.weight", "model.layers.{layer}.self_attn.g_a_proj.weight"),
    needed("blk.{layer}.ssm_g_b.weight", "model.layers.{layer}.self_attn.g_b_proj.weight"),
    needed("blk.{layer}.ssm_norm.weight", "model.layers.{layer}.self_attn.o_norm.weight"),
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.self_attn.o_proj.weight"),
];

const LATENT: &[Rule] = &[
    needed("blk.{layer}.attn_kv_a_mqa.weight", "model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight"),
    optional("blk.{layer}.attn_q.weight", "model.layers.{layer}.self_attn.q_proj.weight"),
    optional("blk.{layer}.attn_q_a.weight", "model.layers.{layer}.self_attn.q_a_proj.weight"),
    optional("blk.{layer}.attn_q_a_norm.weight", "model.layers.{layer}.self_attn.q_a_layernorm.weight"),
    optional("blk.{layer}.attn_q_b.weight", "model.layers.{layer}.self_attn.q_b_proj.weight"),
    needed("blk.{layer}.attn_kv_a_norm.weight", "model.layers.{layer}.self_attn.kv_a_layernorm.weight"),
    Rule { how: How::LatentKeys, ..needed("blk.{layer}.attn_k_b.weight", KV_B) },
    Rule { how: How::LatentValues, ..needed("blk.{layer}.attn_v_b.weight", KV_B) },
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.self_attn.o_proj.weight"),
];

const KV_B: &str = "model.layers.{layer}.self_attn.kv_b_proj.weight";

/// The router, its selection bias, and the experts.
const MOE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.block_sparse_moe.gate.weight"),
    optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.block_sparse_moe.gate.e_score_correction_bias"),
    needed("blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"),
    needed("blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"),
    needed("blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"),
    optional(
        "blk.{layer}.ffn_gate_shexp.weight",
        "model.layers.{layer}.block_sparse_moe.shared_experts.gate_proj.weight",
    ),
    optional("blk.{layer}.ffn_up_shexp.weight", "model.layers.{layer}.block_sparse_moe.shared_experts.up_proj.weight"),
    optional(
        "blk.{layer}.ffn_down_shexp.weight",
        "model.layers.{layer}.block_sparse_moe.shared_experts.down_proj.weight",
    ),
];

/// A dense MLP as transformers saves it, under the name of experts.
const SAVED_DENSE: &[Rule] = &[
    needed("blk.{layer}.ffn_gate.weight", "model.layers.{layer}.block_sparse_moe.gate_proj.weight"),
    needed("blk.{layer}.ffn_up.weight", "model.layers.{layer}.block_sparse_moe.up_proj.weight"),
    needed("blk.{layer}.ffn_down.weight", "model.layers.{layer}.block_sparse_moe.down_proj.weight"),
];

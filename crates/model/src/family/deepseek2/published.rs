//! DeepSeek V2 and V3, and families with their layers: latent attention (MLA). The first layers are dense. The others
//! have shared experts, and experts routed in the best groups by softmax or by sigmoid with a selection bias.

use crate::family::glm4moe::published as glm4moe;
use crate::family::parts::{
    BASE, DENSE, EXPERTS, HEADS, MOE, NORMS, ROUTED, SELECTION_BIAS, SHARED_EXPERTS, count, expect_flag, expect_number,
    expect_text, factor, needed, norm_epsilon, optional, positive, renormalised,
};
use crate::family::published::{Expect, Expected, Family, How, Key, Kind, Mlx, Or, Rotated, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["deepseek_v2", "deepseek_v3", "kimi_k2"],
    mlx: Mlx::No,
    architecture: "deepseek2",
    keys: &[KEYS, EXPERTS, &norm_epsilon(1e-6), ROUTED],
    beyond: &["scoring_func", "topk_method", "moe_layer_freq", "rope_interleave"],
    nulls: &["q_lora_rank", "n_shared_experts", "head_dim"],
    yarn_scores: true,
    expects: &[
        expect_text("hidden_act", "silu"),
        expect_number("moe_layer_freq", 1.0),
        expect_flag("rope_interleave", true),
        Expect { setting: "topk_method", value: TOPK_METHOD },
    ],
    heads: HEADS,
    layer: &[NORMS, ATTENTION, SELECTION_BIAS, SHARED_EXPERTS],
    mlps: &[MOE, DENSE],
    ..BASE
};

/// GLM-4.7-Flash. Published settings name the router's sigmoid nowhere; its selection bias implies it.
pub(crate) const GLM4_MOE_LITE: Family = Family {
    model_types: &["glm4_moe_lite"],
    keys: &[KEYS, EXPERTS, &norm_epsilon(1e-5), LISTED],
    beyond: &["scoring_func", "topk_method", "moe_layer_freq", "first_k_dense_replace", "rope_interleave"],
    pre: glm4moe::FAMILY.pre,
    special_tokens: glm4moe::FAMILY.special_tokens,
    rotated: Rotated::AlwaysWhole,
    ..FAMILY
};

/// Youtu-LLM, whose layers are all dense.
pub(crate) const YOUTU: Family = Family {
    model_types: &["youtu", "youtu_llm"],
    keys: &[KEYS, &norm_epsilon(1e-6), NO_EXPERTS],
    beyond: &["rope_interleave"],
    nulls: &["q_lora_rank"],
    expects: &[expect_text("hidden_act", "silu"), expect_flag("rope_interleave", true)],
    layer: &[NORMS, ATTENTION],
    mlps: &[DENSE],
    ..FAMILY
};

/// [`ROUTED`] with a list of dense and other layers.
const LISTED: &[Key] = &[
    positive("expert_group_count", &["n_group"]),
    positive("expert_group_used_count", &["topk_group"]),
    Key {
        ours: "leading_dense_block_count",
        theirs: &["mlp_layer_types", "first_k_dense_replace"],
        kind: Kind::CountOrFirst("dense"),
        or: Or::Count(1),
    },
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["n_shared_experts"], Or::Skip),
    factor("expert_weights_scale", &["routed_scaling_factor"], Or::Number(1.0)),
];

/// What llama.cpp requires of a file with dense layers only.
const NO_EXPERTS: &[Key] = &[
    count("leading_dense_block_count", &["num_hidden_layers"], Or::Refuse),
    count("expert_feed_forward_length", &["intermediate_size"], Or::Refuse),
    count("expert_shared_count", &[], Or::Count(0)),
];

/// `greedy` chooses among all experts, whatever the groups.
const TOPK_METHOD: Expected =
    Expected::Grouped { count: "n_group", texts: &["group_limited_greedy", "noaux_tc"], plain: "greedy" };

/// The values are those of GGUF. Without the setting, the key is left out, and experts with a selection bias are routed
/// by sigmoid.
const GATING: Kind = Kind::Named(&[("softmax", 1), ("sigmoid", 2)]);

pub(crate) const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("vocab_size", &["vocab_size"], Or::Refuse),
    count("feed_forward_length", &["intermediate_size"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    count("attention.head_count_kv", &[], Or::Count(1)),
    count("attention.q_lora_rank", &["q_lora_rank"], Or::Skip),
    count("attention.kv_lora_rank", &["kv_lora_rank"], Or::Refuse),
    count("attention.key_length", &[], Or::Sum("kv_lora_rank", "qk_rope_head_dim")),
    count("attention.value_length", &["kv_lora_rank"], Or::Refuse),
    count("attention.key_length_mla", &[], Or::Sum("qk_nope_head_dim", "qk_rope_head_dim")),
    count("attention.value_length_mla", &["v_head_dim"], Or::Refuse),
    count("rope.dimension_count", &["qk_rope_head_dim"], Or::Refuse),
    Key { ours: "expert_gating_func", theirs: &["scoring_func"], kind: GATING, or: Or::Skip },
    renormalised(false),
];

pub(crate) const ATTENTION: &[Rule] = &[
    optional("blk.{layer}.attn_q.weight", "model.layers.{layer}.self_attn.q_proj.weight"),
    optional("blk.{layer}.attn_q_a.weight", "model.layers.{layer}.self_attn.q_a_proj.weight"),
    optional("blk.{layer}.attn_q_a_norm.weight", "model.layers.{layer}.self_attn.q_a_layernorm.weight"),
    optional("blk.{layer}.attn_q_b.weight", "model.layers.{layer}.self_attn.q_b_proj.weight"),
    needed("blk.{layer}.attn_kv_a_mqa.weight", "model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight"),
    needed("blk.{layer}.attn_kv_a_norm.weight", "model.layers.{layer}.self_attn.kv_a_layernorm.weight"),
    Rule { how: How::LatentKeys, ..needed("blk.{layer}.attn_k_b.weight", KV_B) },
    Rule { how: How::LatentValues, ..needed("blk.{layer}.attn_v_b.weight", KV_B) },
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.self_attn.o_proj.weight"),
];

const KV_B: &str = "model.layers.{layer}.self_attn.kv_b_proj.weight";

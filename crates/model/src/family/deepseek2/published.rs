//! DeepSeek V2 and V3, and families with their layers: latent attention (MLA). The first layers are dense. The others
//! have shared experts, and experts routed in the best groups by softmax or by sigmoid with a selection bias.

use crate::family::parts::{
    BASE, DENSE, EXPERTS, HEADS, MOE, NORMS, ROUTED, SELECTION_BIAS, SHARED_EXPERTS, count, expect_flag, expect_number,
    expect_text, needed, norm_epsilon, optional, renormalised,
};
use crate::family::published::{Expect, Expected, Family, How, Key, Kind, Mlx, Or, Rule};

pub(crate) const FAMILY: Family = Family {
    model_types: &["deepseek_v2", "deepseek_v3", "kimi_k2"],
    mlx: Mlx::No,
    architecture: "deepseek2",
    keys: &[KEYS, EXPERTS, &norm_epsilon(1e-6), ROUTED],
    beyond: &["scoring_func", "topk_method", "moe_layer_freq"],
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

/// `greedy` chooses among all experts, whatever the groups.
const TOPK_METHOD: Expected =
    Expected::Grouped { count: "n_group", texts: &["group_limited_greedy", "noaux_tc"], plain: "greedy" };

/// The values are those of GGUF. Without the setting, the key is left out, and experts with a selection bias are routed
/// by sigmoid.
const GATING: Kind = Kind::Named(&[("softmax", 1), ("sigmoid", 2)]);

const KEYS: &[Key] = &[
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

const ATTENTION: &[Rule] = &[
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

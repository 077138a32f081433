//! MiniMax M3: norms multiply by 1 + weight. The folder is that of a vision model; the index is written and not run.

use crate::family::gemma3::published::{GLOBALS, norm};
use crate::family::llama::published::MIXTRAL_EXPERTS;
use crate::family::parts::{
    ATTENTION, BASE, DENSE, EXPERTS, count, expect_number, factor, head_widths, needed, norm_epsilon, optional,
    sigmoid_router,
};
use crate::family::published::{Expect, Expected, Family, Key, Kind, Mlx, Need, Or, Prefix, Rotated, Rule, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["minimax_m3_vl"],
    mlx: Mlx::Changed(&["minimax_m3_vl"]),
    architecture: "minimax-m3",
    keys: &[KEYS, EXPERTS, &norm_epsilon(1e-6), &head_widths(Or::Count(128))],
    beyond: &[
        "moe_layer_freq",
        "n_shared_experts",
        "scoring_func",
        "sparse_block_size",
        "sparse_index_dim",
        "sparse_local_block",
        "sparse_num_index_heads",
        "sparse_topk_blocks",
    ],
    inner: Some("sparse_attention_config"),
    rotated: Rotated::Part(1.0),
    within: Some(Within {
        settings: "text_config",
        tensors: &[Prefix { model: "language_model.model.", others: "language_model." }],
        towers: &["vision_tower.", "multi_modal_projector.", "patch_merge_mlp."],
        named: "the vision tower",
    }),
    expects: &[
        Expect { setting: "hidden_act", value: Expected::OneOf(&["swigluoai", "silu"]) },
        expect_number("swiglu_alpha", 1.702),
        expect_number("swiglu_limit", 7.0),
    ],
    globals: &[GLOBALS, HEAD],
    layer: &[NORMS, ATTENTION, BIAS, SHARED, INDEX],
    mlps: &[MIXTRAL_EXPERTS, DENSE],
    ..BASE
};

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("feed_forward_length", &["dense_intermediate_size"], Or::Refuse),
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    count("attention.head_count_kv", &["num_key_value_heads"], Or::Refuse),
    count("expert_feed_forward_length", &["intermediate_size"], Or::Refuse),
    count("expert_shared_count", &["n_shared_experts"], Or::Refuse),
    factor("expert_weights_scale", &["routed_scaling_factor"], Or::Number(2.0)),
    Key { ours: "expert_weights_norm", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) },
    sigmoid_router(&["scoring_func"], Or::Count(2)),
    Key { ours: "leading_dense_block_count", theirs: &["moe_layer_freq"], kind: Kind::LeadingZeros, or: Or::Refuse },
    count("attention.indexer.head_count", &["sparse_num_index_heads", "index_n_heads"], Or::Refuse),
    count("attention.indexer.key_length", &["sparse_index_dim", "index_head_dim"], Or::Refuse),
    count("attention.indexer.top_k", &["sparse_topk_blocks", "index_topk_blocks"], Or::Refuse),
    count("attention.indexer.block_size", &["sparse_block_size", "index_block_size"], Or::Refuse),
    count("attention.indexer.local_blocks", &["sparse_local_block", "index_local_blocks"], Or::Refuse),
];

const HEAD: &[Rule] = &[Rule { need: Need::UnlessTied, ..needed("output.weight", "lm_head.weight") }];

const NORMS: &[Rule] = &[
    norm("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    norm("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
    norm("blk.{layer}.attn_q_norm.weight", "model.layers.{layer}.self_attn.q_norm.weight"),
    norm("blk.{layer}.attn_k_norm.weight", "model.layers.{layer}.self_attn.k_norm.weight"),
];

const BIAS: &[Rule] =
    &[optional("blk.{layer}.exp_probs_b.bias", "model.layers.{layer}.block_sparse_moe.e_score_correction_bias")];

const SHARED: &[Rule] = &[
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

/// The index of the layers with experts.
const INDEX: &[Rule] = &[
    optional("blk.{layer}.indexer.q_proj.weight", "model.layers.{layer}.self_attn.index_q_proj.weight"),
    optional("blk.{layer}.indexer.k_proj.weight", "model.layers.{layer}.self_attn.index_k_proj.weight"),
    index_norm("blk.{layer}.indexer.q_norm.weight", "model.layers.{layer}.self_attn.index_q_norm.weight"),
    index_norm("blk.{layer}.indexer.k_norm.weight", "model.layers.{layer}.self_attn.index_k_norm.weight"),
];

const fn index_norm(ours: &'static str, theirs: &'static str) -> Rule {
    Rule { need: Need::IfThere, ..norm(ours, theirs) }
}

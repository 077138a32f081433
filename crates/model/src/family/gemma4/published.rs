//! Gemma 4, the text model of a multimodal model. It is dense, has experts in parallel with an MLP, or has per-layer
//! embeddings and layers that share KV caches. Norms multiply by the weight itself.

use crate::family::olmo2::published::WINDOWS;
use crate::family::parts::{
    BASE, DENSE, EXPERT_COUNT, GLOBALS, INNER, OUTER, count, expect_text, factor, needed, norm_epsilon, optional,
    unless_unset,
};
use crate::family::published::{Family, Key, Kind, Merges, Mlx, Need, Or, Rotated, Rule, Within};

pub(crate) const FAMILY: Family = Family {
    model_types: &["gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"],
    mlx: Mlx::Changed(&["gemma4", "gemma4_text"]),
    architecture: "gemma4",
    keys: &[KEYS, &norm_epsilon(1e-6)],
    beyond: &["global_head_dim", "num_global_key_value_heads", "per_layer_config"],
    nulls: &[
        "use_bidirectional_attention",
        "final_logit_softcapping",
        "num_global_key_value_heads",
        "num_experts",
        "top_k_experts",
        "moe_intermediate_size",
        "hidden_size_per_layer_input",
    ],
    full_layers: &[("global_head_dim", "head_dim"), ("num_global_key_value_heads", "num_key_value_heads")],
    rotated: Rotated::Pairs("global_head_dim"),
    merges: Some(Merges { model: "gemma4", shown: MARKS }),
    within: Some(Within {
        settings: "text_config",
        tensors: &[INNER, OUTER],
        towers: &[
            "model.vision_tower.",
            "model.vision_embedder.",
            "model.audio_tower.",
            "model.embed_vision.",
            "model.embed_audio.",
        ],
        named: "towers for images and sound",
    }),
    expects: &[
        expect_text("hidden_activation", "gelu_pytorch_tanh"),
        // Rules for image tokens only.
        expect_text("use_bidirectional_attention", "vision"),
    ],
    globals: &[GLOBALS, LAYER_INPUTS],
    layer: &[NORMS, ATTENTION, DENSE, EXPERTS, OUTPUT_SCALE, LAYER_INPUT],
    mlps: &[],
    ..BASE
};

/// The markers of reasoning, tool calls and tool results.
const MARKS: &[&str] =
    &["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>"];

const WIDTH: Key =
    Key { ours: "feed_forward_length", theirs: &["intermediate_size"], kind: Kind::WidthUnlessShared, or: Or::Refuse };

const KV_HEADS: Key = Key {
    ours: "attention.head_count_kv",
    theirs: &["num_key_value_heads"],
    kind: Kind::CountUnlessFull("num_global_key_value_heads"),
    or: Or::Refuse,
};

const KEYS: &[Key] = &[
    count("block_count", &["num_hidden_layers"], Or::Refuse),
    count("context_length", &["max_position_embeddings"], Or::Refuse),
    count("embedding_length", &["hidden_size"], Or::Refuse),
    count("embedding_length_per_layer_input", &["hidden_size_per_layer_input"], Or::Count(0)),
    WIDTH,
    count("attention.head_count", &["num_attention_heads"], Or::Refuse),
    KV_HEADS,
    count("attention.key_length", &["global_head_dim"], Or::Refuse),
    count("attention.value_length", &["global_head_dim"], Or::Refuse),
    count("attention.key_length_swa", &["head_dim"], Or::Refuse),
    count("attention.value_length_swa", &["head_dim"], Or::Refuse),
    count("rope.dimension_count", &["global_head_dim"], Or::Refuse),
    count("rope.dimension_count_swa", &["head_dim"], Or::Refuse),
    count("attention.sliding_window", &["sliding_window"], Or::Refuse),
    WINDOWS,
    count("attention.shared_kv_layers", &["num_kv_shared_layers"], Or::Count(0)),
    factor("final_logit_softcapping", &["final_logit_softcapping"], Or::Skip),
    count("expert_count", EXPERT_COUNT, Or::Skip),
    count("expert_used_count", &["top_k_experts"], Or::Skip),
    count("expert_feed_forward_length", &["moe_intermediate_size"], Or::Skip),
];

/// The per-layer embeddings.
const LAYER_INPUTS: &[Rule] = &[
    optional("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"),
    optional("per_layer_model_proj.weight", "model.per_layer_model_projection.weight"),
    optional("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"),
];

const NORMS: &[Rule] = &[
    needed("blk.{layer}.attn_norm.weight", "model.layers.{layer}.input_layernorm.weight"),
    needed("blk.{layer}.post_attention_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight"),
    needed("blk.{layer}.ffn_norm.weight", "model.layers.{layer}.pre_feedforward_layernorm.weight"),
    needed("blk.{layer}.post_ffw_norm.weight", "model.layers.{layer}.post_feedforward_layernorm.weight"),
];

/// Layers that read another layer's cache have queries only. Values can be the keys.
const ATTENTION: &[Rule] = &[
    needed("blk.{layer}.attn_q.weight", "model.layers.{layer}.self_attn.q_proj.weight"),
    optional("blk.{layer}.attn_k.weight", "model.layers.{layer}.self_attn.k_proj.weight"),
    Rule {
        need: Need::UnlessFull("attention_k_eq_v"),
        ..needed("blk.{layer}.attn_v.weight", "model.layers.{layer}.self_attn.v_proj.weight")
    },
    needed("blk.{layer}.attn_output.weight", "model.layers.{layer}.self_attn.o_proj.weight"),
    needed("blk.{layer}.attn_q_norm.weight", "model.layers.{layer}.self_attn.q_norm.weight"),
    optional("blk.{layer}.attn_k_norm.weight", "model.layers.{layer}.self_attn.k_norm.weight"),
];

/// Whether layers have experts.
const MOE: &str = "enable_moe_block";

/// Experts in parallel with the MLP, and a router with a scale of its input and factors of the experts.
const EXPERTS: &[Rule] = &[
    unless_unset(MOE, "blk.{layer}.ffn_gate_inp.weight", "model.layers.{layer}.router.proj.weight"),
    unless_unset(MOE, "blk.{layer}.ffn_gate_inp.scale", "model.layers.{layer}.router.scale"),
    unless_unset(MOE, "blk.{layer}.ffn_gate_up_exps.weight", "model.layers.{layer}.experts.gate_up_proj"),
    unless_unset(MOE, "blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.experts.down_proj"),
    // MLX has separate gate and up matrices.
    unless_unset(MOE, "blk.{layer}.ffn_gate_exps.weight", "model.layers.{layer}.experts.switch_glu.gate_proj.weight"),
    unless_unset(MOE, "blk.{layer}.ffn_up_exps.weight", "model.layers.{layer}.experts.switch_glu.up_proj.weight"),
    unless_unset(MOE, "blk.{layer}.ffn_down_exps.weight", "model.layers.{layer}.experts.switch_glu.down_proj.weight"),
    unless_unset(MOE, "blk.{layer}.ffn_down_exps.scale", "model.layers.{layer}.router.per_expert_scale"),
    unless_unset(MOE, "blk.{layer}.pre_ffw_norm_2.weight", "model.layers.{layer}.pre_feedforward_layernorm_2.weight"),
    unless_unset(MOE, "blk.{layer}.post_ffw_norm_1.weight", "model.layers.{layer}.post_feedforward_layernorm_1.weight"),
    unless_unset(MOE, "blk.{layer}.post_ffw_norm_2.weight", "model.layers.{layer}.post_feedforward_layernorm_2.weight"),
];

const OUTPUT_SCALE: &[Rule] = &[needed("blk.{layer}.layer_output_scale.weight", "model.layers.{layer}.layer_scalar")];

const LAYER_INPUT: &[Rule] = &[
    optional("blk.{layer}.inp_gate.weight", "model.layers.{layer}.per_layer_input_gate.weight"),
    optional("blk.{layer}.proj.weight", "model.layers.{layer}.per_layer_projection.weight"),
    optional("blk.{layer}.post_norm.weight", "model.layers.{layer}.post_per_layer_input_norm.weight"),
];

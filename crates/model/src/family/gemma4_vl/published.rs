//! The tower of Gemma 4, with the ranges of its products in the E models, and what the 12B has in its place.

use crate::family::parts::{count, number};
use crate::family::published::{Key, Or, TowerFamily, TowerHow, TowerRule, linear, one};

pub(crate) const TOWER: TowerFamily = TowerFamily {
    model_types: &["gemma4"],
    projector: "gemma4v",
    keys: KEYS,
    outer_keys: &[],
    expects: &[("hidden_activation", "gelu_pytorch_tanh")],
    layers: Some("num_hidden_layers"),
    deepstack: None,
    prefixes: &[("model.", "model."), ("model.", "")],
    globals: GLOBALS,
    layer: LAYER,
    deepstack_layer: &[],
};

/// The defaults are those of transformers' `Gemma4VisionConfig`.
const KEYS: &[Key] = &[
    count("vision.embedding_length", &["hidden_size"], Or::Count(768)),
    count("vision.feed_forward_length", &["intermediate_size"], Or::Count(3072)),
    count("vision.block_count", &["num_hidden_layers"], Or::Count(16)),
    count("vision.attention.head_count", &["num_attention_heads"], Or::Count(12)),
    count("vision.patch_size", &["patch_size"], Or::Count(16)),
    // Not used: a picture has any size within a number of tokens.
    count("vision.image_size", &[], Or::Count(224)),
    count("vision.projector.scale_factor", &["pooling_kernel_size"], Or::Count(3)),
    number("vision.attention.layer_norm_epsilon", &["rms_norm_eps"], Or::Number(1e-6)),
];

const fn clamped(ours: &'static str, theirs: &'static str) -> TowerRule {
    TowerRule { ours, theirs, how: TowerHow::Clamped }
}

const GLOBALS: &[TowerRule] = &[
    one("v.patch_embd.weight", "model.vision_tower.patch_embedder.input_proj.weight", TowerHow::ChannelsLast),
    one("v.position_embd.weight", "model.vision_tower.patch_embedder.position_embedding_table", TowerHow::Same),
    one("v.std_bias", "model.vision_tower.std_bias", TowerHow::Optional),
    one("v.std_scale", "model.vision_tower.std_scale", TowerHow::Optional),
    linear("mm.input_projection", "model.embed_vision.embedding_projection"),
];

const LAYER: &[TowerRule] = &[
    linear("v.blk.{layer}.ln1", "model.vision_tower.encoder.layers.{layer}.input_layernorm"),
    linear("v.blk.{layer}.ln2", "model.vision_tower.encoder.layers.{layer}.pre_feedforward_layernorm"),
    linear("v.blk.{layer}.attn_post_norm", "model.vision_tower.encoder.layers.{layer}.post_attention_layernorm"),
    linear("v.blk.{layer}.ffn_post_norm", "model.vision_tower.encoder.layers.{layer}.post_feedforward_layernorm"),
    linear("v.blk.{layer}.attn_q_norm", "model.vision_tower.encoder.layers.{layer}.self_attn.q_norm"),
    linear("v.blk.{layer}.attn_k_norm", "model.vision_tower.encoder.layers.{layer}.self_attn.k_norm"),
    clamped("v.blk.{layer}.attn_q", "model.vision_tower.encoder.layers.{layer}.self_attn.q_proj"),
    clamped("v.blk.{layer}.attn_k", "model.vision_tower.encoder.layers.{layer}.self_attn.k_proj"),
    clamped("v.blk.{layer}.attn_v", "model.vision_tower.encoder.layers.{layer}.self_attn.v_proj"),
    clamped("v.blk.{layer}.attn_out", "model.vision_tower.encoder.layers.{layer}.self_attn.o_proj"),
    clamped("v.blk.{layer}.ffn_gate", "model.vision_tower.encoder.layers.{layer}.mlp.gate_proj"),
    clamped("v.blk.{layer}.ffn_up", "model.vision_tower.encoder.layers.{layer}.mlp.up_proj"),
    clamped("v.blk.{layer}.ffn_down", "model.vision_tower.encoder.layers.{layer}.mlp.down_proj"),
];

/// Gemma 4 12B, `gemma4_unified`.
pub(crate) const UNIFIED: TowerFamily = TowerFamily {
    model_types: &["gemma4_unified"],
    projector: "gemma4uv",
    keys: UNIFIED_KEYS,
    outer_keys: &[],
    expects: &[],
    layers: None,
    deepstack: None,
    prefixes: &[("model.", "model."), ("model.", "")],
    globals: UNIFIED_GLOBALS,
    layer: &[],
    deepstack_layer: &[],
};

/// The defaults are those of transformers' `Gemma4UnifiedVisionConfig`.
const UNIFIED_KEYS: &[Key] = &[
    count("vision.embedding_length", &["mm_embed_dim"], Or::Count(3840)),
    count("vision.feed_forward_length", &[], Or::Count(0)),
    count("vision.block_count", &[], Or::Count(0)),
    count("vision.attention.head_count", &[], Or::Count(0)),
    // Of a block of these, the model has one patch.
    count("vision.patch_size", &["patch_size"], Or::Count(16)),
    count("vision.projector.scale_factor", &["pooling_kernel_size"], Or::Count(3)),
    // Not used.
    count("vision.image_size", &[], Or::Count(224)),
    number("vision.attention.layer_norm_epsilon", &["rms_norm_eps"], Or::Number(1e-6)),
];

const UNIFIED_GLOBALS: &[TowerRule] = &[
    one("v.patch_embd.weight", "model.vision_embedder.patch_dense.weight", TowerHow::FlatChannelsLast),
    one("v.patch_embd.bias", "model.vision_embedder.patch_dense.bias", TowerHow::Same),
    one("v.position_embd.weight", "model.vision_embedder.pos_embedding", TowerHow::Tables),
    one("v.patch_norm.1.weight", "model.vision_embedder.patch_ln1.weight", TowerHow::FlatChannelsLast),
    one("v.patch_norm.1.bias", "model.vision_embedder.patch_ln1.bias", TowerHow::FlatChannelsLast),
    linear("v.patch_norm.2", "model.vision_embedder.patch_ln2"),
    linear("v.patch_norm.3", "model.vision_embedder.pos_norm"),
    linear("mm.input_projection", "model.embed_vision.embedding_projection"),
];

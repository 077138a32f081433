//! The tower of Gemma 3: SigLIP, averages of blocks and a matrix.

use crate::family::parts::{count, number};
use crate::family::published::{Key, Kind, Or, TowerFamily, TowerHow, TowerRule, linear, one};

pub(crate) const TOWER: TowerFamily = TowerFamily {
    model_types: &["gemma3"],
    projector: "gemma3",
    keys: KEYS,
    outer_keys: &[],
    expects: &[("hidden_act", "gelu_pytorch_tanh")],
    layers: Some("num_hidden_layers"),
    deepstack: None,
    prefixes: &[("vision_tower.", "vision_tower."), ("vision_tower.", "vision_tower.vision_model."), ("", "model.")],
    globals: GLOBALS,
    layer: LAYER,
    deepstack_layer: &[],
};

/// The defaults are those of transformers' `SiglipVisionConfig`.
const KEYS: &[Key] = &[
    count("vision.embedding_length", &["hidden_size"], Or::Count(768)),
    count("vision.feed_forward_length", &["intermediate_size"], Or::Count(3072)),
    count("vision.block_count", &["num_hidden_layers"], Or::Count(12)),
    count("vision.attention.head_count", &["num_attention_heads"], Or::Count(12)),
    count("vision.patch_size", &["patch_size"], Or::Count(16)),
    count("vision.image_size", &["image_size"], Or::Count(224)),
    number("vision.attention.layer_norm_epsilon", &["layer_norm_eps"], Or::Number(1e-6)),
    Key { ours: "use_gelu", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) },
];

const GLOBALS: &[TowerRule] = &[
    one("v.patch_embd.weight", "vision_tower.embeddings.patch_embedding.weight", TowerHow::ChannelsFirst),
    one("v.patch_embd.bias", "vision_tower.embeddings.patch_embedding.bias", TowerHow::Same),
    one("v.position_embd.weight", "vision_tower.embeddings.position_embedding.weight", TowerHow::Same),
    linear("v.post_ln", "vision_tower.post_layernorm"),
    one("mm.soft_emb_norm.weight", "multi_modal_projector.mm_soft_emb_norm.weight", TowerHow::PlusOne),
    one("mm.input_projection.weight", "multi_modal_projector.mm_input_projection_weight", TowerHow::Same),
];

const LAYER: &[TowerRule] = &[
    linear("v.blk.{layer}.ln1", "vision_tower.encoder.layers.{layer}.layer_norm1"),
    linear("v.blk.{layer}.ln2", "vision_tower.encoder.layers.{layer}.layer_norm2"),
    linear("v.blk.{layer}.attn_q", "vision_tower.encoder.layers.{layer}.self_attn.q_proj"),
    linear("v.blk.{layer}.attn_k", "vision_tower.encoder.layers.{layer}.self_attn.k_proj"),
    linear("v.blk.{layer}.attn_v", "vision_tower.encoder.layers.{layer}.self_attn.v_proj"),
    linear("v.blk.{layer}.attn_out", "vision_tower.encoder.layers.{layer}.self_attn.out_proj"),
    linear("v.blk.{layer}.ffn_up", "vision_tower.encoder.layers.{layer}.mlp.fc1"),
    linear("v.blk.{layer}.ffn_down", "vision_tower.encoder.layers.{layer}.mlp.fc2"),
];

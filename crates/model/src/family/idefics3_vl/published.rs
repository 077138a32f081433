//! The tower of Idefics3 and SmolVLM: SigLIP and a matrix.

use crate::family::parts::{count, number};
use crate::family::published::{Key, Kind, Or, TowerFamily, TowerHow, TowerRule, linear, one};

/// The defaults are those of transformers' `Idefics3VisionConfig`.
pub(crate) const TOWER: TowerFamily = TowerFamily {
    model_types: &["idefics3"],
    projector: "idefics3",
    keys: &[
        count("vision.embedding_length", &["hidden_size"], Or::Count(1152)),
        count("vision.feed_forward_length", &["intermediate_size"], Or::Count(3072)),
        count("vision.block_count", &["num_hidden_layers"], Or::Count(12)),
        count("vision.attention.head_count", &["num_attention_heads"], Or::Count(16)),
        count("vision.patch_size", &["patch_size"], Or::Count(32)),
        count("vision.image_size", &["image_size"], Or::Count(224)),
        number("vision.attention.layer_norm_epsilon", &["layer_norm_eps"], Or::Number(1e-6)),
        Key { ours: "use_gelu", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) },
    ],
    // The processor states the factor too, as `projector.scale_factor`.
    outer_keys: &[],
    expects: &[("hidden_act", "gelu_pytorch_tanh")],
    layers: Some("num_hidden_layers"),
    deepstack: None,
    prefixes: &[("model.", "model.")],
    globals: GLOBALS,
    layer: LAYER,
    deepstack_layer: &[],
};

/// The same classes with another name.
pub(crate) const SMOLVLM: TowerFamily = TowerFamily { model_types: &["smolvlm"], ..TOWER };

const GLOBALS: &[TowerRule] = &[
    one("v.patch_embd.weight", "model.vision_model.embeddings.patch_embedding.weight", TowerHow::ChannelsFirst),
    one("v.patch_embd.bias", "model.vision_model.embeddings.patch_embedding.bias", TowerHow::Same),
    one("v.position_embd.weight", "model.vision_model.embeddings.position_embedding.weight", TowerHow::Same),
    linear("v.post_ln", "model.vision_model.post_layernorm"),
    linear("mm.model.fc", "model.connector.modality_projection.proj"),
];

const LAYER: &[TowerRule] = &[
    linear("v.blk.{layer}.ln1", "model.vision_model.encoder.layers.{layer}.layer_norm1"),
    linear("v.blk.{layer}.ln2", "model.vision_model.encoder.layers.{layer}.layer_norm2"),
    linear("v.blk.{layer}.attn_q", "model.vision_model.encoder.layers.{layer}.self_attn.q_proj"),
    linear("v.blk.{layer}.attn_k", "model.vision_model.encoder.layers.{layer}.self_attn.k_proj"),
    linear("v.blk.{layer}.attn_v", "model.vision_model.encoder.layers.{layer}.self_attn.v_proj"),
    linear("v.blk.{layer}.attn_out", "model.vision_model.encoder.layers.{layer}.self_attn.out_proj"),
    linear("v.blk.{layer}.ffn_up", "model.vision_model.encoder.layers.{layer}.mlp.fc1"),
    linear("v.blk.{layer}.ffn_down", "model.vision_model.encoder.layers.{layer}.mlp.fc2"),
];

//! The tower of LFM2-VL: SigLIP2 and a projector of two products.

use crate::family::parts::{count, number};
use crate::family::published::{Key, Kind, Or, TowerFamily, TowerHow, TowerRule, linear, one};

pub(crate) const TOWER: TowerFamily = TowerFamily {
    model_types: &["lfm2_vl"],
    projector: "lfm2",
    keys: KEYS,
    outer_keys: &[count("vision.projector.scale_factor", &["downsample_factor"], Or::Count(2))],
    expects: &[("hidden_act", "gelu_pytorch_tanh")],
    layers: Some("num_hidden_layers"),
    deepstack: None,
    prefixes: &[
        ("model.vision_tower.", "model.vision_tower."),
        ("model.vision_tower.", "model.vision_tower.vision_model."),
        ("model.", ""),
    ],
    globals: GLOBALS,
    layer: LAYER,
    deepstack_layer: &[],
};

/// The defaults are those of transformers' `Siglip2VisionConfig`.
const KEYS: &[Key] = &[
    count("vision.embedding_length", &["hidden_size"], Or::Count(768)),
    count("vision.feed_forward_length", &["intermediate_size"], Or::Count(3072)),
    count("vision.block_count", &["num_hidden_layers"], Or::Count(12)),
    count("vision.attention.head_count", &["num_attention_heads"], Or::Count(12)),
    count("vision.patch_size", &["patch_size"], Or::Count(16)),
    count("vision.image_size", &["image_size"], Or::Count(256)),
    number("vision.attention.layer_norm_epsilon", &["layer_norm_eps"], Or::Number(1e-6)),
    Key { ours: "use_gelu", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) },
];

const GLOBALS: &[TowerRule] = &[
    one("v.patch_embd.weight", "model.vision_tower.embeddings.patch_embedding.weight", TowerHow::ChannelsLast),
    one("v.patch_embd.bias", "model.vision_tower.embeddings.patch_embedding.bias", TowerHow::Same),
    one("v.position_embd.weight", "model.vision_tower.embeddings.position_embedding.weight", TowerHow::Same),
    linear("v.post_ln", "model.vision_tower.post_layernorm"),
    linear("mm.input_norm", "model.multi_modal_projector.layer_norm"),
    linear("mm.1", "model.multi_modal_projector.linear_1"),
    linear("mm.2", "model.multi_modal_projector.linear_2"),
];

const LAYER: &[TowerRule] = &[
    linear("v.blk.{layer}.ln1", "model.vision_tower.encoder.layers.{layer}.layer_norm1"),
    linear("v.blk.{layer}.ln2", "model.vision_tower.encoder.layers.{layer}.layer_norm2"),
    linear("v.blk.{layer}.attn_q", "model.vision_tower.encoder.layers.{layer}.self_attn.q_proj"),
    linear("v.blk.{layer}.attn_k", "model.vision_tower.encoder.layers.{layer}.self_attn.k_proj"),
    linear("v.blk.{layer}.attn_v", "model.vision_tower.encoder.layers.{layer}.self_attn.v_proj"),
    linear("v.blk.{layer}.attn_out", "model.vision_tower.encoder.layers.{layer}.self_attn.out_proj"),
    linear("v.blk.{layer}.ffn_up", "model.vision_tower.encoder.layers.{layer}.mlp.fc1"),
    linear("v.blk.{layer}.ffn_down", "model.vision_tower.encoder.layers.{layer}.mlp.fc2"),
];

//! The tower of GLM-4.1V, 4.5V and 4.6V.

use crate::family::parts::{count, number};
use crate::family::published::{Key, Kind, Or, TowerFamily, TowerHow, TowerRule, linear, one};

pub(crate) const TOWER: TowerFamily = TowerFamily {
    model_types: &["glm4v", "glm4v_moe", "glm46v"],
    projector: "glm4v",
    keys: KEYS,
    outer_keys: &[],
    expects: &[("hidden_act", "silu")],
    layers: Some("depth"),
    deepstack: None,
    prefixes: &[("model.", "model."), ("model.", "")],
    globals: GLOBALS,
    layer: LAYER,
    deepstack_layer: &[],
};

/// The defaults are those of transformers' `Glm4vVisionConfig`. `intermediate_size` is that of the projector's MLP.
const KEYS: &[Key] = &[
    count("vision.embedding_length", &["hidden_size"], Or::Count(1536)),
    count("vision.feed_forward_length", &["intermediate_size"], Or::Count(13696)),
    count("vision.block_count", &["depth"], Or::Count(24)),
    count("vision.attention.head_count", &["num_heads"], Or::Count(12)),
    count("vision.patch_size", &["patch_size"], Or::Count(14)),
    count("vision.spatial_merge_size", &["spatial_merge_size"], Or::Count(2)),
    count("vision.image_size", &["image_size"], Or::Count(336)),
    number("vision.attention.layer_norm_epsilon", &["rms_norm_eps"], Or::Number(1e-5)),
    Key { ours: "use_silu", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) },
];

const GLOBALS: &[TowerRule] = &[
    one("v.patch_embd.weight", "model.visual.patch_embed.proj.weight", TowerHow::Frame(0)),
    one("v.patch_embd.weight.1", "model.visual.patch_embed.proj.weight", TowerHow::Frame(1)),
    one("v.patch_embd.bias", "model.visual.patch_embed.proj.bias", TowerHow::Same),
    linear("v.norm_embd", "model.visual.post_conv_layernorm"),
    one("v.position_embd.weight", "model.visual.embeddings.position_embedding.weight", TowerHow::Same),
    linear("v.post_ln", "model.visual.post_layernorm"),
    one("mm.patch_merger.weight", "model.visual.downsample.weight", TowerHow::Convolution),
    one("mm.patch_merger.bias", "model.visual.downsample.bias", TowerHow::Same),
    linear("mm.model.fc", "model.visual.merger.proj"),
    linear("mm.post_norm", "model.visual.merger.post_projection_norm"),
    linear("mm.gate", "model.visual.merger.gate_proj"),
    linear("mm.up", "model.visual.merger.up_proj"),
    linear("mm.down", "model.visual.merger.down_proj"),
];

const LAYER: &[TowerRule] = &[
    linear("v.blk.{layer}.ln1", "model.visual.blocks.{layer}.norm1"),
    linear("v.blk.{layer}.ln2", "model.visual.blocks.{layer}.norm2"),
    linear("v.blk.{layer}.attn_qkv", "model.visual.blocks.{layer}.attn.qkv"),
    linear("v.blk.{layer}.attn_out", "model.visual.blocks.{layer}.attn.proj"),
    linear("v.blk.{layer}.ffn_gate", "model.visual.blocks.{layer}.mlp.gate_proj"),
    linear("v.blk.{layer}.ffn_up", "model.visual.blocks.{layer}.mlp.up_proj"),
    linear("v.blk.{layer}.ffn_down", "model.visual.blocks.{layer}.mlp.down_proj"),
];

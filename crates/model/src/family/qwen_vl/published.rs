//! The tower of Qwen3-VL, and of Qwen 3.5 and 3.6, which adds nothing to layers of the text model.

use crate::family::parts::{count, number};
use crate::family::published::{Key, Kind, Or, TowerFamily, TowerHow, TowerRule, linear, one};

pub(crate) const TOWER: TowerFamily = TowerFamily {
    model_types: &["qwen3_vl", "qwen3_vl_moe"],
    projector: "qwen3vl_merger",
    keys: KEYS,
    outer_keys: &[],
    expects: &[("hidden_act", "gelu_pytorch_tanh")],
    layers: Some("depth"),
    deepstack: Some("deepstack_visual_indexes"),
    prefixes: &[("model.", "model."), ("model.", "")],
    globals: GLOBALS,
    layer: LAYER,
    deepstack_layer: DEEPSTACK,
};

pub(crate) const WITHOUT_DEEPSTACK: TowerFamily =
    TowerFamily { model_types: &["qwen3_5", "qwen3_5_moe"], deepstack: None, deepstack_layer: &[], ..TOWER };

/// The defaults are those of transformers' `Qwen3VLVisionConfig`.
const KEYS: &[Key] = &[
    count("vision.embedding_length", &["hidden_size"], Or::Count(1152)),
    count("vision.feed_forward_length", &["intermediate_size"], Or::Count(4304)),
    count("vision.block_count", &["depth"], Or::Count(27)),
    count("vision.attention.head_count", &["num_heads"], Or::Count(16)),
    count("vision.patch_size", &["patch_size"], Or::Count(16)),
    count("vision.spatial_merge_size", &["spatial_merge_size"], Or::Count(2)),
    count("vision.image_size", &["image_size"], Or::Count(768)),
    number("vision.attention.layer_norm_epsilon", &[], Or::Number(1e-6)),
    Key { ours: "use_gelu", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) },
];

const GLOBALS: &[TowerRule] = &[
    one("v.patch_embd.weight", "model.visual.patch_embed.proj.weight", TowerHow::Frame(0)),
    one("v.patch_embd.weight.1", "model.visual.patch_embed.proj.weight", TowerHow::Frame(1)),
    one("v.patch_embd.bias", "model.visual.patch_embed.proj.bias", TowerHow::Same),
    one("v.position_embd.weight", "model.visual.pos_embed.weight", TowerHow::Same),
    linear("v.post_ln", "model.visual.merger.norm"),
    linear("mm.0", "model.visual.merger.linear_fc1"),
    linear("mm.2", "model.visual.merger.linear_fc2"),
];

const LAYER: &[TowerRule] = &[
    linear("v.blk.{layer}.ln1", "model.visual.blocks.{layer}.norm1"),
    linear("v.blk.{layer}.ln2", "model.visual.blocks.{layer}.norm2"),
    linear("v.blk.{layer}.attn_qkv", "model.visual.blocks.{layer}.attn.qkv"),
    linear("v.blk.{layer}.attn_out", "model.visual.blocks.{layer}.attn.proj"),
    linear("v.blk.{layer}.ffn_up", "model.visual.blocks.{layer}.mlp.linear_fc1"),
    linear("v.blk.{layer}.ffn_down", "model.visual.blocks.{layer}.mlp.linear_fc2"),
];

const DEEPSTACK: &[TowerRule] = &[
    linear("v.deepstack.{layer}.norm", "model.visual.deepstack_merger_list.{index}.norm"),
    linear("v.deepstack.{layer}.fc1", "model.visual.deepstack_merger_list.{index}.linear_fc1"),
    linear("v.deepstack.{layer}.fc2", "model.visual.deepstack_merger_list.{index}.linear_fc2"),
];

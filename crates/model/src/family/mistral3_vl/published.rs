//! The tower of Mistral Small 3.1 and later, and Ministral 3. Queries and keys of its files have neighbours as pairs.

use crate::family::parts::{count, number};
use crate::family::published::{Key, Kind, Or, TowerFamily, TowerHow, TowerRule, linear, one};

pub(crate) const TOWER: TowerFamily = TowerFamily {
    model_types: &["mistral3"],
    projector: "pixtral",
    keys: KEYS,
    outer_keys: &[count("vision.spatial_merge_size", &["spatial_merge_size"], Or::Count(2))],
    expects: &[],
    layers: Some("num_hidden_layers"),
    deepstack: None,
    prefixes: &[("model.", "model."), ("model.", "")],
    globals: GLOBALS,
    layer: LAYER,
    deepstack_layer: &[],
};

/// The defaults are those of transformers' `PixtralVisionConfig`. Its `hidden_act` is that of the gate in `Mistral3`, which
/// is SiLU.
const KEYS: &[Key] = &[
    count("vision.embedding_length", &["hidden_size"], Or::Count(1024)),
    count("vision.feed_forward_length", &["intermediate_size"], Or::Count(4096)),
    count("vision.block_count", &["num_hidden_layers"], Or::Count(24)),
    count("vision.attention.head_count", &["num_attention_heads"], Or::Count(16)),
    count("vision.patch_size", &["patch_size"], Or::Count(16)),
    count("vision.image_size", &["image_size"], Or::Count(1024)),
    number("vision.attention.layer_norm_epsilon", &[], Or::Number(1e-5)),
    Key { ours: "use_silu", theirs: &[], kind: Kind::Flag, or: Or::Flag(true) },
];

const GLOBALS: &[TowerRule] = &[
    one("v.patch_embd.weight", "model.vision_tower.patch_conv.weight", TowerHow::ChannelsFirst),
    linear("v.pre_ln", "model.vision_tower.ln_pre"),
    linear("mm.input_norm", "model.multi_modal_projector.norm"),
    linear("mm.patch_merger", "model.multi_modal_projector.patch_merger.merging_layer"),
    linear("mm.1", "model.multi_modal_projector.linear_1"),
    linear("mm.2", "model.multi_modal_projector.linear_2"),
];

const LAYER: &[TowerRule] = &[
    linear("v.blk.{layer}.ln1", "model.vision_tower.transformer.layers.{layer}.attention_norm"),
    linear("v.blk.{layer}.ln2", "model.vision_tower.transformer.layers.{layer}.ffn_norm"),
    one(
        "v.blk.{layer}.attn_q.weight",
        "model.vision_tower.transformer.layers.{layer}.attention.q_proj.weight",
        TowerHow::PairRows,
    ),
    one(
        "v.blk.{layer}.attn_k.weight",
        "model.vision_tower.transformer.layers.{layer}.attention.k_proj.weight",
        TowerHow::PairRows,
    ),
    linear("v.blk.{layer}.attn_v", "model.vision_tower.transformer.layers.{layer}.attention.v_proj"),
    linear("v.blk.{layer}.attn_out", "model.vision_tower.transformer.layers.{layer}.attention.o_proj"),
    linear("v.blk.{layer}.ffn_gate", "model.vision_tower.transformer.layers.{layer}.feed_forward.gate_proj"),
    linear("v.blk.{layer}.ffn_up", "model.vision_tower.transformer.layers.{layer}.feed_forward.up_proj"),
    linear("v.blk.{layer}.ffn_down", "model.vision_tower.transformer.layers.{layer}.feed_forward.down_proj"),
];

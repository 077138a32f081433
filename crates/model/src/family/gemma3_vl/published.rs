//! The tower of Gemma 3: SigLIP, averages of blocks and a matrix.

use crate::family::parts::{siglip_keys, siglip_layer};
use crate::family::published::{TowerFamily, TowerHow, TowerRule, linear, one};

pub(crate) const TOWER: TowerFamily = TowerFamily {
    model_types: &["gemma3"],
    projector: "gemma3",
    // The defaults are those of transformers' `SiglipVisionConfig`.
    keys: &siglip_keys(768, 3072, 12, 16, 224),
    outer_keys: &[],
    expects: &[("hidden_act", "gelu_pytorch_tanh")],
    layers: Some("num_hidden_layers"),
    deepstack: None,
    prefixes: &[("vision_tower.", "vision_tower."), ("vision_tower.", "vision_tower.vision_model."), ("", "model.")],
    globals: GLOBALS,
    layer: siglip_layer!("vision_tower.encoder.layers.{layer}"),
    deepstack_layer: &[],
};

const GLOBALS: &[TowerRule] = &[
    one("v.patch_embd.weight", "vision_tower.embeddings.patch_embedding.weight", TowerHow::ChannelsFirst),
    one("v.patch_embd.bias", "vision_tower.embeddings.patch_embedding.bias", TowerHow::Same),
    one("v.position_embd.weight", "vision_tower.embeddings.position_embedding.weight", TowerHow::Same),
    linear("v.post_ln", "vision_tower.post_layernorm"),
    one("mm.soft_emb_norm.weight", "multi_modal_projector.mm_soft_emb_norm.weight", TowerHow::PlusOne),
    one("mm.input_projection.weight", "multi_modal_projector.mm_input_projection_weight", TowerHow::Same),
];

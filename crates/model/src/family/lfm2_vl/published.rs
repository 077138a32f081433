//! The tower of LFM2-VL: SigLIP2 and a projector of two products.

use crate::family::parts::{count, siglip_keys, siglip_layer};
use crate::family::published::{Or, TowerFamily, TowerHow, TowerRule, linear, one};

pub(crate) const TOWER: TowerFamily = TowerFamily {
    model_types: &["lfm2_vl"],
    projector: "lfm2",
    // The defaults are those of transformers' `Siglip2VisionConfig`.
    keys: &siglip_keys(768, 3072, 12, 16, 256),
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
    layer: siglip_layer!("model.vision_tower.encoder.layers.{layer}"),
    deepstack_layer: &[],
};

const GLOBALS: &[TowerRule] = &[
    one("v.patch_embd.weight", "model.vision_tower.embeddings.patch_embedding.weight", TowerHow::ChannelsLast),
    one("v.patch_embd.bias", "model.vision_tower.embeddings.patch_embedding.bias", TowerHow::Same),
    one("v.position_embd.weight", "model.vision_tower.embeddings.position_embedding.weight", TowerHow::Same),
    linear("v.post_ln", "model.vision_tower.post_layernorm"),
    linear("mm.input_norm", "model.multi_modal_projector.layer_norm"),
    linear("mm.1", "model.multi_modal_projector.linear_1"),
    linear("mm.2", "model.multi_modal_projector.linear_2"),
];

//! The tower of Idefics3 and SmolVLM: SigLIP and a matrix.

use crate::family::parts::{siglip_keys, siglip_layer};
use crate::family::published::{TowerFamily, TowerHow, TowerRule, linear, one};

/// The defaults are those of transformers' `Idefics3VisionConfig`.
pub(crate) const TOWER: TowerFamily = TowerFamily {
    model_types: &["idefics3"],
    projector: "idefics3",
    keys: &siglip_keys(1152, 3072, 16, 32, 224),
    // The processor states the factor too, as `projector.scale_factor`.
    outer_keys: &[],
    expects: &[("hidden_act", "gelu_pytorch_tanh")],
    layers: Some("num_hidden_layers"),
    deepstack: None,
    prefixes: &[("model.", "model.")],
    globals: GLOBALS,
    layer: siglip_layer!("model.vision_model.encoder.layers.{layer}"),
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

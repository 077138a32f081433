//! `mamba2`: a selective scan in every layer, and no MLP.

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{LayerSpec, Mixer, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.refuse_count("attention.head_count", "0 (no attention)")?;
    file.refuse_count("feed_forward_length", "0 (no MLP)")?;
    let layer = LayerSpec { mixer: Mixer::Scan(file.scan()?), mlp: None };
    file.model(vec![layer; file.layers()?])
}

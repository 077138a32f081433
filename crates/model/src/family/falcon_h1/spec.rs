//! `falcon-h1`: in every layer attention and a selective scan read the same norm, and their outputs are added. Factors of
//! embeddings, projections and logits are part of the weights, so the embedding table cannot be the output matrix.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::{Error, Result};
use crate::family::read::KeyReader;
use crate::spec::{LayerSpec, Mixer, ModelSpec};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let mixers = vec![Mixer::Attention(file.attention(RopeStyle::Halves)?), Mixer::Scan(file.scan()?)];
    let layer = LayerSpec { mixer: Mixer::Sum(mixers), mlp: Some(file.dense(Activation::SwiGlu)?) };
    let spec = file.model(vec![layer; file.layers()?])?;
    match spec.tied_embeddings {
        false => Ok(spec),
        true => {
            let shape = vec![spec.hidden as u64, spec.vocab as u64];
            Err(Error::MissingTensor { name: "output.weight".to_owned(), shape })
        }
    }
}

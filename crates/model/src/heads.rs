//! Prediction heads in a file of their own: the layers of the heads, after the layers of a model in another file.

use std::fmt::Display;

use gristmill_files::gguf::{GgufFile, Value};

use crate::error::{Error, Result};

/// The keys that a file of heads and its model are compared by.
struct HeadsFile<'a> {
    file: &'a GgufFile,
    architecture: &'a str,
}

impl<'a> HeadsFile<'a> {
    fn new(file: &'a GgufFile) -> Result<Self> {
        Ok(Self { file, architecture: file.metadata().required("general.architecture")? })
    }

    fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.architecture)
    }

    fn count(&self, suffix: &str) -> Result<usize> {
        Ok(self.file.metadata().optional(&self.key(suffix))?.unwrap_or(0))
    }

    /// Layers before those of the heads.
    fn layers(&self) -> Result<usize> {
        Ok(self.count("block_count")?.saturating_sub(self.count("nextn_predict_layers")?))
    }

    /// Tokens of the vocabulary.
    fn tokens(&self) -> Result<Option<&'a [String]>> {
        Ok(self.file.metadata().optional("tokenizer.ggml.tokens")?)
    }

    fn has_tensors_of(&self, layer: usize) -> bool {
        let start = format!("blk.{layer}.");
        self.file.tensors().iter().any(|tensor| tensor.name.starts_with(&start))
    }
}

/// Whether a file has the layers of prediction heads, and no other layer.
///
/// # Errors
/// A key of the wrong type, or no architecture.
pub fn is_heads_file(file: &GgufFile) -> Result<bool> {
    let file = HeadsFile::new(file)?;
    let Some(last) = file.count("block_count")?.checked_sub(1) else { return Ok(false) };
    let name = format!("blk.{last}.nextn.eh_proj.weight");
    Ok(last > 0 && file.file.tensor(&name).is_some() && !file.has_tensors_of(0))
}

/// The model with the prediction heads of another file ([`is_heads_file`]), to be loaded with
/// [`LoadOptions::prediction_heads`](crate::LoadOptions::prediction_heads). Embeddings and the output matrix are the
/// model's, as for heads in one file with it.
///
/// # Errors
/// [`Error::Heads`] if the heads are not those of the model: another architecture, hidden size, number of layers or
/// vocabulary; or if the model has heads.
pub fn with_heads_of(model: &GgufFile, heads: &GgufFile) -> Result<GgufFile> {
    let (own, other) = (HeadsFile::new(model)?, HeadsFile::new(heads)?);
    same("architecture", own.architecture, other.architecture)?;
    same("hidden size", own.count("embedding_length")?, other.count("embedding_length")?)?;
    same("number of layers", own.layers()?, other.layers()?)?;
    if let (Some(own), Some(other)) = (own.tokens()?, other.tokens()?) {
        same("size of the vocabulary", own.len(), other.len())?;
        if let Some(at) = (0..own.len()).find(|&at| own[at] != other[at]) {
            same(&format!("token {at}"), format!("{:?}", own[at]), format!("{:?}", other[at]))?;
        }
    }
    let layers = own.layers()?;
    let count = other.count("nextn_predict_layers")?;
    if own.has_tensors_of(layers) {
        return Err(Error::Heads("the model has prediction heads in its own file".to_owned()));
    }
    let layer = |name: &str| name.strip_prefix("blk.")?.split_once('.')?.0.parse::<usize>().ok();
    let takes = |name: &str| layer(name).is_some_and(|layer| (layers..layers.saturating_add(count)).contains(&layer));
    let number = |n: usize| u32::try_from(n).map_or(Value::U64(n as u64), Value::U32);
    let pairs = [
        (own.key("block_count"), number(layers.saturating_add(count))),
        (own.key("nextn_predict_layers"), number(count)),
    ];
    Ok(model.with_tensors_of(heads, takes, &pairs))
}

/// Fails if a property of the model and of the heads differs.
fn same<T: PartialEq + Display>(what: &str, model: T, heads: T) -> Result<()> {
    match model == heads {
        true => Ok(()),
        false => Err(Error::Heads(format!("{what}: the model has {model}, the file of prediction heads {heads}"))),
    }
}

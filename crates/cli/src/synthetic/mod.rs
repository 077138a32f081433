//! Synthetic models for speed measurements: random weights in the exact shapes and formats of published models.
//!
//! `qwen3-30b-a3b:Q4_K_M` names a model of [`models::MODELS`] and a format or a mix ([`gristmill_convert::quantize`]).
//! The file is a valid GGUF file with a vocabulary of the published size, so any engine loads it; its text is random.
//! Its routers choose experts as published models do ([`shapes::Popularity`]): the residual stream is mainly the
//! token's embedding, so tokens differ, and experts are chosen unevenly, but all of them. Otherwise, each layer's
//! attention adds the mean of the context to all tokens, and after some layers they choose the same experts: a prompt
//! of 512 tokens read 36 of 128. The same name always gives the same bytes.

mod blocks;
mod channels;
mod gemma4;
mod latent;
mod mixers;
mod models;
mod rng;
mod shapes;
#[cfg(test)]
mod tests;
mod vocabulary;
mod windowed;
mod write;

use std::path::Path;

use gristmill_convert::quantize::{Mix, QuantizeError};
use gristmill_files::gguf::{GgufFile, GgufWriter, WriteError};
use gristmill_kernels::format::Format;
use thiserror::Error;

use crate::failure::Failure;
use mixers::Mixers;
pub(crate) use rng::Random;
use shapes::{Model, TensorPlan};

/// The key of the recipe. A cached file with another recipe is replaced.
const RECIPE_KEY: &str = "gristmill.synthetic";
/// Part of the recipe: raised with each change of the bytes of a name.
const REVISION: u32 = 4;

/// Why a synthetic model cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum SyntheticError {
    /// Unknown model.
    #[error("there is no synthetic model `{name}`; known are {known}")]
    Model {
        /// The requested name.
        name: String,
        /// All names.
        known: String,
    },
    /// Unknown mix or format.
    #[error("there is no format `{name}` for a synthetic model; known are {known}")]
    Mix {
        /// The requested name.
        name: String,
        /// All names.
        known: String,
    },
    /// The number of layers is out of range.
    #[error("--layers must be 1 to {max}, found {0}", max = shapes::MAX_LAYERS)]
    Layers(u32),
    /// No format fits a tensor.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A mix by name. The name of a format stands for that format in all weights but the output head.
fn find_mix(name: &str) -> Option<Mix> {
    let numbered = |format: &Format| format.ggml_type().is_some();
    Format::named(name).filter(numbered).map(Mix::uniform).or_else(|| Mix::named(name))
}

/// All names, formats first.
fn mix_names() -> Vec<&'static str> {
    let mut names: Vec<_> = Format::numbered().map(Format::name).collect();
    names.extend(Mix::all().iter().map(Mix::name).filter(|name| Format::named(name).is_none()));
    names
}

/// A synthetic model before it is written.
#[derive(Debug, Clone)]
pub(crate) struct Synthetic {
    model: Model,
    mix: Mix,
}

impl Synthetic {
    /// Parses `NAME[:FORMAT]`, by default in the mix in which the model is published; `layers` overrides the published
    /// depth.
    ///
    /// # Errors
    /// If the name or the format is unknown, or the layers are not 1 to [`shapes::MAX_LAYERS`].
    pub(crate) fn parse(spec: &str, layers: Option<u32>) -> Result<Synthetic, SyntheticError> {
        let (name, mix) = spec.split_once(':').map_or((spec, None), |(name, mix)| (name, Some(mix)));
        // A prediction head is added to any model with layers of one kind of attention.
        let (base, mtp) = name.strip_suffix("-mtp").map_or((name, false), |base| (base, true));
        let differs = |m: &Model| matches!(m.special.mixers, Mixers::Gemma4(_) | Mixers::Windowed(_));
        let fits = |m: &&Model| m.name.eq_ignore_ascii_case(base) && !(mtp && differs(m));
        let mut model = *models::MODELS.iter().find(fits).ok_or_else(|| {
            let known = models::MODELS.iter().map(|m| m.name).collect::<Vec<_>>().join(", ");
            SyntheticError::Model { name: name.to_owned(), known }
        })?;
        let mix = mix.unwrap_or(model.mix());
        let mix =
            find_mix(mix).ok_or_else(|| SyntheticError::Mix { name: mix.to_owned(), known: mix_names().join(", ") })?;
        model.layers = layers.unwrap_or(model.layers);
        model.special.mtp = mtp;
        if !(1..=shapes::MAX_LAYERS).contains(&model.layers) {
            return Err(SyntheticError::Layers(model.layers));
        }
        Ok(Synthetic { model, mix })
    }

    /// The name without the format.
    fn name(&self) -> String {
        let head = if self.model.special.mtp { "-mtp" } else { "" };
        format!("{}{head}", self.model.name)
    }

    /// Everything that determines the bytes.
    fn recipe(&self) -> String {
        format!("{} {} layers={} revision={REVISION}", self.name(), self.mix.name(), self.model.layers)
    }

    /// The name of its file in a cache.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-{}-{}-layers.gguf", self.name(), self.mix.name(), self.model.layers)
    }

    /// Bytes of its file.
    ///
    /// # Errors
    /// If no format fits a tensor.
    pub(crate) fn file_bytes(&self) -> Result<u64, SyntheticError> {
        Ok(self.plan()?.1.file_bytes())
    }

    /// The file as it would be read, without data.
    ///
    /// # Errors
    /// If no format fits a tensor.
    pub(crate) fn preview(&self) -> Result<GgufFile, SyntheticError> {
        Ok(self.plan()?.1.preview())
    }

    /// The tensors in file order, and the file without its tensor data.
    fn plan(&self) -> Result<(Vec<TensorPlan>, GgufWriter), SyntheticError> {
        let tensors = self.model.tensors(&self.mix)?;
        let mut file = GgufWriter::new();
        self.model.describe(&mut file)?;
        vocabulary::describe(self.model.vocabulary, &mut file)?;
        file.set(RECIPE_KEY, self.recipe())?;
        for tensor in &tensors {
            file.tensor(&tensor.name, tensor.format, &tensor.shape)?;
        }
        Ok((tensors, file))
    }

    /// Writes the file under a temporary name, which it has until it is complete. `progress` takes the bytes written
    /// and the size of the file.
    ///
    /// # Errors
    /// If the disk has too little free space (nothing is written then), a write fails, or a signal arrives.
    pub(crate) fn write(&self, path: &Path, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<(), Failure> {
        let (tensors, file) = self.plan()?;
        write::write(path, &tensors, file, progress)
    }

    /// Whether `path` holds this model, complete.
    pub(crate) fn is_written(&self, path: &Path) -> bool {
        let Ok((_, plan)) = self.plan() else { return false };
        let Ok(file) = GgufFile::open(path) else { return false };
        file.file_bytes() == plan.file_bytes()
            && file.metadata().required::<&str>(RECIPE_KEY).is_ok_and(|r| r == self.recipe())
    }
}

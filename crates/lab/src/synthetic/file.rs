//! A synthetic model by its name, and its file.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gristmill_convert::quantize::Mix;
use gristmill_files::gguf::{GgufFile, GgufWriter, TensorSource};

use super::error::SyntheticError;
use super::folder::{self, Codes};
use super::mix::{find_mix, mix_names};
use super::mixers::Mixers;
use super::shapes::{MAX_LAYERS, Model, TensorPlan};
use super::write::Progress;
use super::{models, vocabulary, write};

/// The key of the recipe. A cached file with another recipe is replaced.
const RECIPE_KEY: &str = "gristmill.synthetic";
/// Part of the recipe: raised with each change of the bytes of a name.
const REVISION: u32 = 4;

/// A synthetic model before it is written.
#[derive(Debug, Clone)]
pub struct Synthetic {
    pub(super) model: Model,
    pub(super) mix: Mix,
    /// The codes, if it is a folder.
    pub(super) codes: Option<Codes>,
}

impl Synthetic {
    /// Parses `NAME[:FORMAT]`, by default in the mix in which the model is published; `layers` overrides the published
    /// depth. `GPTQ` and `FP8` are folders of Hugging Face.
    ///
    /// # Errors
    /// If the name or the format is unknown, no folder is written of the model, or the layers are not 1 to [`MAX_LAYERS`].
    pub fn parse(spec: &str, layers: Option<u32>) -> Result<Synthetic, SyntheticError> {
        let (name, mix) = spec.split_once(':').map_or((spec, None), |(name, mix)| (name, Some(mix)));
        // A prediction head is added to any model with layers of one kind of attention, or of Nemotron's kinds.
        let (base, mtp) = name.strip_suffix("-mtp").map_or((name, false), |base| (base, true));
        let differs = |m: &Model| match m.special.mixers {
            Mixers::Gemma4(_) | Mixers::Windowed(_) => true,
            Mixers::Scans(scans) => !scans.can_have_head(),
            _ => false,
        };
        let fits = |m: &&Model| m.name.eq_ignore_ascii_case(base) && !(mtp && differs(m));
        let mut model = *models::MODELS.iter().find(fits).ok_or_else(|| {
            let known = models::MODELS.iter().map(|m| m.name).collect::<Vec<_>>().join(", ");
            SyntheticError::Model { name: name.to_owned(), known }
        })?;
        let codes = mix.and_then(Codes::named);
        // What has no codes is BF16.
        let mix = codes.map_or(mix.unwrap_or(model.mix()), |_| "BF16");
        let known = || [mix_names(), Codes::ALL.map(|(name, _)| name).to_vec()].concat().join(", ");
        let mix = find_mix(mix).ok_or_else(|| SyntheticError::Mix { name: mix.to_owned(), known: known() })?;
        model.layers = layers.unwrap_or(model.layers);
        model.special.mtp = mtp;
        if !(1..=MAX_LAYERS).contains(&model.layers) {
            return Err(SyntheticError::Layers(model.layers));
        }
        codes.map_or(Ok(()), |_| folder::check(&model))?;
        Ok(Synthetic { model, mix, codes })
    }

    /// The name without the format.
    fn name(&self) -> String {
        let head = if self.model.special.mtp { "-mtp" } else { "" };
        format!("{}{head}", self.model.name)
    }

    /// The name of the format.
    fn format(&self) -> &'static str {
        self.codes.map_or(self.mix.name(), Codes::name)
    }

    /// Everything that determines the bytes.
    fn recipe(&self) -> String {
        let recipe = format!("{} {} layers={} revision={REVISION}", self.name(), self.format(), self.model.layers);
        self.codes.map_or(recipe.clone(), |_| format!("{recipe} codes={}", folder::REVISION))
    }

    /// The name of its file, or folder, in a cache.
    pub fn file_name(&self) -> String {
        let end = if self.codes.is_some() { "" } else { ".gguf" };
        format!("{}-{}-{}-layers{end}", self.name(), self.format(), self.model.layers)
    }

    /// Bytes of its file.
    ///
    /// # Errors
    /// If no format fits a tensor.
    pub fn file_bytes(&self) -> Result<u64, SyntheticError> {
        let (tensors, file) = self.plan()?;
        Ok(self.codes.map_or_else(|| file.file_bytes(), |codes| folder::bytes(&self.model, codes, &tensors)))
    }

    /// The file as it would be read, without data.
    ///
    /// # Errors
    /// If no format fits a tensor.
    pub fn preview(&self) -> Result<GgufFile, SyntheticError> {
        Ok(self.plan()?.1.preview())
    }

    /// A model that can be loaded onto a device that computes nothing: all weights are zeros, which are made when they are
    /// read.
    ///
    /// # Errors
    /// If no format fits a tensor.
    pub fn without_data(&self) -> Result<GgufFile, SyntheticError> {
        let (_, file) = self.plan()?;
        let bytes = file.preview().tensors().iter().map(|tensor| tensor.bytes as usize).collect();
        Ok(file.with_source(Arc::new(Zeros(bytes))))
    }

    /// The tensors in file order, and the file without its tensor data.
    pub(super) fn plan(&self) -> Result<(Vec<TensorPlan>, GgufWriter), SyntheticError> {
        let tensors = self.model.tensors(&self.mix)?;
        let mut file = GgufWriter::new();
        self.model.describe(&mut file)?;
        vocabulary::describe(self.model.vocabulary, &mut file)?;
        file.set(RECIPE_KEY, self.recipe())?;
        for tensor in &tensors {
            let loaded = self.codes.and_then(|codes| folder::loaded(&self.model, codes, tensor));
            file.tensor(&tensor.name, loaded.unwrap_or(tensor.format), &tensor.shape)?;
        }
        Ok((tensors, file))
    }

    /// Writes the file under a temporary name, which it has until it is complete. `progress` takes the bytes written
    /// and the size of the file, and can stop the work.
    ///
    /// # Errors
    /// If a write fails, or `progress` stops it.
    pub fn write(&self, path: &Path, progress: Progress<'_>) -> Result<(), SyntheticError> {
        let (tensors, file) = self.plan()?;
        if let Some(codes) = self.codes {
            return folder::write(path, &self.model, codes, &tensors, &self.recipe(), progress);
        }
        write::write(path, &tensors, file, progress)
    }

    /// Whether `path` holds this model, complete.
    pub fn is_written(&self, path: &Path) -> bool {
        if self.codes.is_some() {
            return folder::is_written(path, &self.recipe());
        }
        let Ok((_, plan)) = self.plan() else { return false };
        let Ok(file) = GgufFile::open(path) else { return false };
        file.file_bytes() == plan.file_bytes()
            && file.metadata().required::<&str>(RECIPE_KEY).is_ok_and(|r| r == self.recipe())
    }
}

/// Tensors of zeros, by their bytes.
#[derive(Debug)]
struct Zeros(Vec<usize>);

impl TensorSource for Zeros {
    fn mapped(&self, _tensor: usize) -> Option<&[u8]> {
        None
    }

    fn make(&self, tensor: usize) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(vec![0; self.0.get(tensor).copied().unwrap_or_default()])
    }

    fn done(&self, _tensor: usize) {}

    fn paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn file_bytes(&self) -> u64 {
        self.0.iter().map(|&bytes| bytes as u64).sum()
    }

    fn sample(&self, _take: &mut dyn FnMut(&[u8])) {}
}

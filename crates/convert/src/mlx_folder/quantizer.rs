//! Plans and writes a quantised folder.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gristmill_model::Progress;
use serde_json::{Map, Value};

use super::plan::Made;
use crate::checkpoint::Checkpoint;
use crate::error::ConvertError;
use crate::family::Family;
use crate::files;
use crate::mlx::{self, Target};
use crate::{ConvertOptions, read};

/// Widths of codes and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlxWidths(pub(super) mlx::Widths);

impl MlxWidths {
    /// Reads `4bit:64`: the bits of a code, and the columns of a group (without them 64).
    ///
    /// # Errors
    /// [`ConvertError::MlxWidths`].
    ///
    /// ```
    /// use gristmill_convert::MlxWidths;
    ///
    /// assert_eq!(MlxWidths::parse("4bit")?, MlxWidths::parse("4bit:64")?);
    /// assert!(MlxWidths::parse("7bit:64").is_err());
    /// # Ok::<(), gristmill_convert::ConvertError>(())
    /// ```
    pub fn parse(text: &str) -> Result<MlxWidths, ConvertError> {
        let (bits, group) = text.split_once(':').unwrap_or((text, "64"));
        let bits = bits.strip_suffix("bit").and_then(|bits| bits.parse().ok());
        let widths = bits.zip(group.parse().ok()).map(|(bits, group)| mlx::Widths { bits, group });
        let known = widths.filter(|w| mlx::BITS.contains(&w.bits) && mlx::GROUPS.contains(&w.group));
        known.map(MlxWidths).ok_or_else(|| ConvertError::MlxWidths(text.to_owned()))
    }
}

/// A folder to be quantised as MLX does, read and checked.
pub struct MlxQuantizer {
    pub(super) folder: PathBuf,
    pub(super) checkpoint: Checkpoint,
    pub(super) settings: Map<String, Value>,
    pub(super) widths: mlx::Widths,
    pub(super) made: Vec<Made>,
}

impl MlxQuantizer {
    /// Reads the folder, and checks everything but the values of the weights.
    ///
    /// # Errors
    /// [`ConvertError`] names the file, and the key or tensor. Folders that are quantised already, and of families
    /// whose tensors MLX has in another form, are refused.
    pub fn new(folder: &Path, widths: MlxWidths) -> Result<MlxQuantizer, ConvertError> {
        let MlxWidths(widths) = widths;
        // The tensors of prediction heads are written too, but mlx-lm ignores them.
        let options = ConvertOptions { without_heads: true, ..ConvertOptions::default() };
        let checkpoint = read(folder, &options, Target::Engine)?.checkpoint;
        let path = folder.join("config.json");
        let settings: Map<String, Value> = files::read_json(&path)?;
        let model_type = settings.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let known = || Family::written_as_mlx().collect::<Vec<_>>().join(", ");
        let family = Family::find(model_type)
            .filter(|_| Family::written_as_mlx().any(|known| known == model_type))
            .ok_or_else(|| ConvertError::Family { path: path.clone(), found: model_type.to_owned(), known: known() })?;
        let is_set = |key: &str| settings.get(key).is_some_and(|value| !value.is_null());
        if is_set("quantization") || is_set("quantization_config") {
            return Err(ConvertError::Requantised(folder.to_owned()));
        }
        let made = super::plan::plan(family, &checkpoint, widths)?;
        Ok(MlxQuantizer { folder: folder.to_owned(), checkpoint, settings, widths, made })
    }

    /// The input files: those of weights, and the small files of the folder.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.checkpoint.files()
    }

    /// The size of the output's weights in bytes.
    pub fn bytes(&self) -> u64 {
        self.made.iter().flat_map(|made| &made.tensors).map(|tensor| tensor.bytes).sum()
    }

    /// How many matrices, or stacks of them, get codes, and how many tensors stay as they are.
    pub fn counts(&self) -> (usize, usize) {
        let codes = self.made.iter().filter(|made| made.is_coded()).count();
        (codes, self.made.len() - codes)
    }

    /// Writes the folder, under a temporary name until it is complete. `progress` is told the bytes of tensors written
    /// and in all, and may stop.
    ///
    /// # Errors
    /// If `output` exists, a weight is not finite (the error names the tensor), or a file cannot be written. Then no
    /// file remains.
    pub fn write(
        &self,
        output: &Path,
        threads: usize,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), ConvertError> {
        super::write::folder(self, output, threads.max(1), progress)
    }
}

//! The vision tower of a model: which file it is, and whether it belongs to the model.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use gristmill_convert::{is_model_folder, open_tower};
use gristmill_engine::machine;
use gristmill_files::gguf::{FileKind, GgufFile};

use crate::failure::Failure;
use crate::hub;
use crate::source::Source;
use crate::verbosity::Verbosity;

/// The vision tower of a model.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct MmprojArg {
    /// The model's vision tower (an mmproj GGUF file), with which it reads images. none: load none [default: the mmproj
    /// file in the model's folder or repository, if there is one].
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    mmproj: Option<PathBuf>,
}

/// A tower's file, and why it is loaded.
pub(crate) struct Projector {
    pub(crate) file: GgufFile,
    pub(crate) choice: Choice,
}

/// Why a tower is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The command line names it: the command fails without it.
    Named,
    /// It belongs to the model, by its name or as the only model of the folder: a line says why it is not loaded.
    Own,
    /// It may be another model's of the folder.
    Maybe,
}

/// Words of names that all projectors and quantisations have.
const COMMON_WORDS: [&str; 12] =
    ["mmproj", "projector", "model", "vision", "gguf", "f16", "fp16", "bf16", "f32", "fp32", "q8", "0"];

/// Quantisations in the order in which one is chosen of several, as `gristmill pull` does.
const ORDER: [&str; 4] = ["f16", "bf16", "q8", "f32"];

impl MmprojArg {
    /// Whether the command line names a tower, or none.
    pub(crate) fn is_given(&self) -> bool {
        self.mmproj.is_some()
    }

    /// The tower of a model.
    pub(crate) fn open(&self, source: Source, log: &Verbosity) -> Result<Option<Projector>, Failure> {
        match &self.mmproj {
            Some(path) if path.as_os_str() == "none" => Ok(None),
            Some(path) => {
                let file = GgufFile::open(path).map_err(|error| Failure::new(format!("--mmproj {error}")))?;
                if FileKind::of_file(&file) != FileKind::Projector {
                    let path = path.display();
                    let message = format!("--mmproj {path}: the file is no vision tower; name the model's mmproj file");
                    return Err(Failure::new(message));
                }
                Ok(Some(Projector { file, choice: Choice::Named }))
            }
            None => beside(source, log),
        }
    }
}

/// The tower in the folder of a model, or of a model that is a folder.
fn beside(source: Source, log: &Verbosity) -> Result<Option<Projector>, Failure> {
    let model = match source {
        Source::File(path) | Source::Quantised(path, _) => path.to_owned(),
        // The model has been opened, so the cache has it.
        Source::Hub(name) | Source::HubQuantised(name, _) => hub::path(name, &Verbosity { quiet: true, ..*log })?,
        Source::BuiltIn => return Ok(None),
    };
    let (opened, choice) = match is_model_folder(&model) {
        true => (open_tower(&model, machine::physical_cores()).map_err(Failure::from), Choice::Own),
        false => match found(&model) {
            Some((path, choice)) => (GgufFile::open(path).map(Some).map_err(Failure::from), choice),
            None => return Ok(None),
        },
    };
    match opened {
        Ok(file) => Ok(file.map(|file| Projector { file, choice })),
        Err(failure) => {
            left_out(choice, failure.message(), log);
            Ok(None)
        }
    }
}

/// Says that a tower which the command line does not name is left out.
pub(crate) fn left_out(choice: Choice, reason: impl Display, log: &Verbosity) {
    let line = format_args!("warning: the model reads no images, because its tower is not loaded: {reason}");
    if choice == Choice::Maybe { log.detail(line) } else { log.info(line) }
}

/// The projector in the folder of a model file that belongs to it by its name.
fn found(model: &Path) -> Option<(PathBuf, Choice)> {
    let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
    let own = name(model)?;
    let paths: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    let mut fitting: Vec<(usize, &PathBuf)> =
        paths.iter().filter_map(|path| Some((rank(&name(path)?, &own)?, path))).collect();
    fitting.sort();
    let is_projector = |path: &Path| matches!(FileKind::of_path(path), Ok(Some(FileKind::Projector)));
    let (_, path) = fitting.into_iter().find(|(_, path)| is_projector(path))?;
    let is_model = |name: &str| name.ends_with(".gguf") && FileKind::of_name(name) == FileKind::LanguageModel;
    let models = paths.iter().filter_map(|path| name(path)).filter(|name| is_model(name)).count();
    let has_own_words = words(&name(path)?).any(|word| !COMMON_WORDS.contains(&word));
    Some((path.clone(), if has_own_words || models < 2 { Choice::Own } else { Choice::Maybe }))
}

/// The words of a name.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// How late a file with this name is chosen for the model with the name `own`; `None` if it is no projector, or one of
/// another model. All words of its name but the common ones are words of the model's name.
fn rank(name: &str, own: &str) -> Option<usize> {
    let is_gguf = name.ends_with(".gguf") && FileKind::of_name(name) == FileKind::Projector;
    let of_model: Vec<&str> = words(own).collect();
    let belongs = words(name).all(|word| COMMON_WORDS.contains(&word) || of_model.contains(&word));
    let order = ORDER.iter().position(|tag| words(name).any(|word| word == *tag));
    (is_gguf && belongs).then(|| order.unwrap_or(ORDER.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_projector_belongs_to_the_model_of_its_words() {
        let model = "lfm2-vl-450m-q4_0.gguf";
        for (name, expected) in [
            ("mmproj-f16.gguf", Some(0)),
            ("mmproj-lfm2-vl-450m-f16.gguf", Some(0)),
            ("lfm2-vl-450m.mmproj-q8_0.gguf", Some(2)),
            ("mmproj-model-bf16.gguf", Some(1)),
            ("mmproj-lfm2-vl-450m.gguf", Some(4)),
            ("mmproj-lfm2-vl-1.6b-f16.gguf", None),
            ("mmproj-gemma-3-4b-f16.gguf", None),
            ("lfm2-vl-450m-f16.gguf", None),
            ("mmproj-f16.bin", None),
        ] {
            assert_eq!(rank(name, model), expected, "{name}");
        }
    }
}

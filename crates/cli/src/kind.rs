//! GGUF files that are no model by themselves: draft models, adapters, projectors, importance matrices, vocabularies.

use std::fmt::Display;

use gristmill_engine::model::is_heads_file;
use gristmill_engine::{LoadOptions, ModelInfo};
use gristmill_files::gguf::{FileKind, GgufFile};
use gristmill_text::tokenizer::Tokenizer;

use crate::failure::Failure;

/// Why a file is no language model: what it is and what to do. `None` for a language model.
pub(crate) fn refusal(file: &GgufFile) -> Option<String> {
    let kind = FileKind::of_file(file);
    let (what, remedy) = match kind {
        FileKind::LanguageModel => return None,
        FileKind::Draft if is_heads_file(file).unwrap_or(false) => (
            "a draft model: prediction heads (MTP) without their model",
            "use it next to its model, with --draft-model",
        ),
        FileKind::Draft => (
            "a draft model, which reads the hidden states of another model",
            "this kind is not supported: use the model for which it drafts",
        ),
        FileKind::Adapter => (
            "a LoRA adapter, which changes a model and is none",
            "adapters are not supported: merge it into its model, and use that",
        ),
        FileKind::Projector => (
            "the projector (mmproj) of a model that sees or hears, without the language model",
            "use the other GGUF file of its repository, and pass this one with --mmproj",
        ),
        FileKind::Imatrix => {
            ("an importance matrix (imatrix), with which models are quantised", "use the model itself")
        }
        FileKind::ControlVector => (
            "a control vector, which steers a model and is none",
            "control vectors are not supported: use the model itself",
        ),
        FileKind::Vocabulary => ("a vocabulary without weights", "use the file with the weights of the model"),
        _ => ("an encoder or decoder of speech or images, without a language model", "use a language model"),
    };
    Some(format!("is {what}; {remedy}"))
}

/// Fails for a file that is no language model.
pub(crate) fn check(file: &GgufFile) -> Result<(), Failure> {
    refusal(file).map_or(Ok(()), |reason| Err(about(file, reason)))
}

/// Fails for a file without weights of a language model or of a draft model.
pub(crate) fn check_weights(file: &GgufFile) -> Result<(), Failure> {
    if FileKind::of_file(file) == FileKind::Draft { Ok(()) } else { check(file) }
}

/// What the metadata say about a model that can run. Errors start with the name of the file.
pub(crate) fn info(file: &GgufFile) -> Result<ModelInfo, Failure> {
    info_for(file, &LoadOptions::default())
}

/// The same for a model that is loaded with these options.
pub(crate) fn info_for(file: &GgufFile, options: &LoadOptions) -> Result<ModelInfo, Failure> {
    check(file)?;
    ModelInfo::read_for(file, options).map_err(|error| about(file, error))
}

/// The tokenizer of a file, also of a file whose model cannot run.
pub(crate) fn tokenizer(file: &GgufFile) -> Result<Tokenizer, Failure> {
    match gristmill_engine::model::tokenizer(file) {
        Ok(Some(tokenizer)) => Ok(tokenizer),
        Ok(None) => {
            let reason = refusal(file).unwrap_or_else(|| gristmill_engine::Error::NoTokenizer.to_string());
            Err(about(file, reason))
        }
        Err(error) => Err(about(file, error)),
    }
}

/// A failure that starts with the name of the file. An error that has it already stays.
fn about(file: &GgufFile, reason: impl Display) -> Failure {
    let reason = reason.to_string();
    match file.paths().next().map(|path| path.display().to_string()) {
        Some(path) if !reason.starts_with(&path) => Failure::new(format!("{path}: {reason}")),
        _ => Failure::new(reason),
    }
}

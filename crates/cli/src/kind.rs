//! GGUF files that are no model by themselves: adapters, projectors, importance matrices, vocabularies.

use std::fmt::Display;

use gristmill_engine::{LoadOptions, ModelInfo};
use gristmill_files::gguf::GgufFile;
use gristmill_text::tokenizer::Tokenizer;

use crate::failure::Failure;

/// A kind of file: values of `general.type` and `general.architecture` that show it, what it is, and what to do.
struct Kind {
    types: &'static [&'static str],
    architectures: &'static [&'static str],
    what: &'static str,
    remedy: &'static str,
}

const KINDS: [Kind; 4] = [
    Kind {
        types: &["adapter"],
        architectures: &[],
        what: "a LoRA adapter, which changes a model and is none",
        remedy: "adapters are not supported: merge it into its model, and use that",
    },
    Kind {
        types: &["mmproj"],
        architectures: &["clip"],
        what: "the projector (mmproj) of a model that sees or hears, without the language model",
        remedy: "use the other GGUF file of its repository, which runs without images",
    },
    Kind {
        types: &["imatrix"],
        architectures: &["imatrix"],
        what: "an importance matrix (imatrix), with which models are quantised",
        remedy: "use the model itself",
    },
    Kind {
        types: &["controlvector"],
        architectures: &["controlvector"],
        what: "a control vector, which steers a model and is none",
        remedy: "control vectors are not supported: use the model itself",
    },
];

const VOCABULARY: &str = "is a vocabulary without weights; use the file with the weights of the model";

/// Why a file is no model, if its metadata show that: what it is and what to do.
pub(crate) fn refusal(file: &GgufFile) -> Option<String> {
    let value = |key: &str| file.metadata().optional::<&str>(key).ok().flatten().unwrap_or_default();
    let (kind, architecture) = (value("general.type"), value("general.architecture"));
    let is = |known: &&Kind| known.types.contains(&kind) || known.architectures.contains(&architecture);
    match KINDS.iter().find(is) {
        Some(Kind { what, remedy, .. }) => Some(format!("is {what}; {remedy}")),
        None => file.tensors().is_empty().then(|| VOCABULARY.to_owned()),
    }
}

/// Fails for a file that is no model.
pub(crate) fn check(file: &GgufFile) -> Result<(), Failure> {
    refusal(file).map_or(Ok(()), |reason| Err(about(file, reason)))
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

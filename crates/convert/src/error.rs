//! Why a folder could not be converted.

use std::io;
use std::path::PathBuf;

use gristmill_files::gguf::{Name, WriteError};
use gristmill_files::json::json_problem;
use gristmill_files::safetensors::SafetensorsError;
use thiserror::Error;

use crate::quantize::{EncodeError, QuantizeError};

/// Why a folder could not be converted. Every message names the place, the problem and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The operating system refused to read.
    #[error("{path}: cannot read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error("{0} is a folder, a pipe or a device, not a file; replace it with the model's own file")]
    NoFile(PathBuf),
    /// A file other than the weights is too long.
    #[error("{path} has more than {limit} bytes; no model has such a file, fetch it again")]
    LongFile {
        /// The file.
        path: PathBuf,
        /// The most bytes that it may have.
        limit: u64,
    },
    /// This path is not a folder.
    #[error("{0} is not a folder; name a folder of Hugging Face")]
    NoFolder(PathBuf),
    /// A JSON file cannot be parsed.
    #[error("{path} is invalid JSON: {}; it is damaged, fetch it again", json_problem(.source))]
    Json {
        /// The file.
        path: PathBuf,
        /// The problem, and its place.
        source: serde_json::Error,
    },
    /// The folder has no weights.
    #[error("{folder} has neither model.safetensors nor model.safetensors.index.json; {hint}")]
    NoWeights {
        /// The folder.
        folder: PathBuf,
        /// The contents of the folder, and the remedy.
        hint: &'static str,
    },
    /// The files of weights are incomplete, or belong to different models.
    #[error("{path}: {problem}")]
    Checkpoint {
        /// The file with the problem, or the index.
        path: PathBuf,
        /// The problem, and the remedy.
        problem: String,
    },
    /// A file of weights is damaged.
    #[error("{path}: {source}")]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// The problem.
        source: SafetensorsError,
    },
    /// A setting of a JSON file has the wrong type, or a value that is not supported.
    #[error("{path}: {} is {found}; expected: {expected}", Name(.key))]
    Setting {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value, with the type if that is wrong.
        found: String,
        /// The expected or supported values.
        expected: String,
    },
    /// The weights are quantised, and the caller requests another format.
    #[error(
        "{0} is quantised, and another format would add an error; leave the format out, or use the folder of the \
         unquantised model"
    )]
    Quantised(PathBuf),
    /// The weights to quantise are already quantised.
    #[error(
        "{0} is quantised already, and quantising again would add an error; use the folder of the unquantised model"
    )]
    Requantised(PathBuf),
    /// This is not a width of codes and groups.
    #[error(
        "{} is not BITSbit:GROUP, as 4bit:64; bits are 2, 3, 4, 5, 6 or 8, columns of a group 32, 64 or 128",
        Name(.0)
    )]
    MlxWidths(String),
    /// The output folder exists.
    #[error("{0} exists; name a new folder")]
    OutputExists(PathBuf),
    /// The settings of the folder do not say how pictures are prepared.
    #[error("{path}: {source}")]
    Vision {
        /// The folder.
        path: PathBuf,
        /// The problem.
        source: gristmill_vision::Error,
    },
    /// A required setting is missing.
    #[error("{path} has no {}, which this model needs; the file is incomplete", Name(.key))]
    NoSetting {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// The family of the model is not supported.
    #[error("{path}: model_type {} is not supported; known: {known}", Name(.found))]
    Family {
        /// `config.json`.
        path: PathBuf,
        /// `model_type`.
        found: String,
        /// The supported model types.
        known: String,
    },
    /// The model needs this tensor.
    #[error("tensor {} is missing; the model is incomplete, or a variant that is not supported", Name(.0))]
    MissingTensor(String),
    /// Tensors that the family does not have.
    #[error(
        "{count} tensors are not weights of a {family} model, the first is {}; the model is a variant that is not \
         supported, and without these tensors it would be another model",
        Name(.first)
    )]
    UnusedTensors {
        /// The number of such tensors.
        count: usize,
        /// The first.
        first: String,
        /// `model_type`.
        family: String,
    },
    /// The elements of a tensor have a type that is not supported.
    #[error("tensor {}: dtype {found} is not supported; known: {known}", Name(.name))]
    Dtype {
        /// The tensor.
        name: String,
        /// Its dtype.
        found: String,
        /// The types that are supported there.
        known: &'static str,
    },
    /// A tensor has another shape than `config.json` requires.
    #[error(
        "tensor {} has shape {found:?}, {expected}; the model is damaged, or config.json belongs to another",
        Name(.name)
    )]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape, outermost dimension first.
        found: Vec<u64>,
        /// The expected shape, as a phrase.
        expected: String,
    },
    /// A scale or bias of affine codes is NaN or infinite.
    #[error("tensor {} has a number that is not finite; the model is damaged, fetch it again", Name(.0))]
    NotFinite(String),
    /// The folder has no tokenizer.
    #[error("{0} has neither tokenizer.json nor tokenizer.model; fetch one of them too")]
    NoTokenizer(PathBuf),
    /// The kind of tokenizer is not supported.
    #[error("{path}: {found} is not supported; known: {known}")]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// The tokenizer's kind.
        found: String,
        /// The supported kinds.
        known: &'static str,
    },
    /// The tokenizer's file is damaged.
    #[error("{path}: {problem}")]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The pre-tokenizer is unknown.
    #[error(
        "{path}: this pre-tokenizer is unknown: {found}; if it equals a known one, name that one; known: \
         {known}"
    )]
    PreTokenizer {
        /// The file.
        path: PathBuf,
        /// Its steps.
        found: String,
        /// The known names.
        known: String,
    },
    /// A pre-tokenizer was named for a tokenizer that has none.
    #[error("{path}: a SentencePiece tokenizer has no pre-tokenizer; leave {} out", Name(.pre))]
    PreUnused {
        /// The file of the tokenizer.
        path: PathBuf,
        /// The caller's name.
        pre: String,
    },
    /// gristmill cannot run the converted model.
    #[error("gristmill cannot run the converted model: {0}")]
    Unrunnable(gristmill_model::Error),
    /// The tensors cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// No format fits.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

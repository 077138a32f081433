//! Why a folder could not be converted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gristmill_kernels::cpu::TranscodeError;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::safetensors::SafetensorsError;
use crate::gguf::{Name, WriteError};
use crate::quantize::QuantizeError;

/// Why a folder could not be converted. Every message says what was wrong, where, and what to do.
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
    /// What was given is not a folder.
    #[error("{path} is not a folder; give the folder of a model as Hugging Face publishes it")]
    NoFolder {
        /// The path.
        path: PathBuf,
    },
    /// A JSON file cannot be parsed.
    #[error("{path} is not as it should be: {source}; it is damaged, fetch it again")]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// The folder has no weights.
    #[error("{folder} has neither model.safetensors nor model.safetensors.index.json; {hint}")]
    NoWeights {
        /// The folder.
        folder: PathBuf,
        /// What it has instead, and what to do.
        hint: &'static str,
    },
    /// A file of weights is a placeholder.
    #[error("{path} is a Git LFS pointer; fetch the file itself with `git lfs pull`")]
    LfsPointer {
        /// The file.
        path: PathBuf,
    },
    /// The index names a file by a path.
    #[error("{index}: {name:?} is not the name of a file beside it")]
    ShardName {
        /// The index.
        index: PathBuf,
        /// The name.
        name: String,
    },
    /// A file of weights is not there.
    #[error("{path} is missing, but {index} names it; fetch it too")]
    MissingShard {
        /// The file.
        path: PathBuf,
        /// The index.
        index: PathBuf,
    },
    /// A file of weights is damaged.
    #[error("{path}: {source}")]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SafetensorsError,
    },
    /// A tensor is in two files.
    #[error("{path}: tensor {} is in another file as well; the folder mixes two models", Name(.tensor))]
    TwiceInShards {
        /// The second file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// The index names a tensor that is not there.
    #[error("{index} names tensor {}, which {shard} does not have; fetch both again", Name(.tensor))]
    NotInShard {
        /// The index.
        index: PathBuf,
        /// The tensor.
        tensor: String,
        /// The file where it should be.
        shard: String,
    },
    /// A file has a tensor that the index does not name.
    #[error("{shard} has tensor {}, which {index} does not name; fetch both again", Name(.tensor))]
    NotInIndex {
        /// The index.
        index: PathBuf,
        /// The tensor.
        tensor: String,
        /// The file that has it.
        shard: PathBuf,
    },
    /// A setting of a JSON file has another type than it should have, or a value that is not supported.
    #[error("{path}: {} is {found}; expected: {expected}", Name(.key))]
    Setting {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What is expected or supported.
        expected: String,
    },
    /// A setting that is needed is not there.
    #[error("{path} has no {}, which this kind of model needs; the file is incomplete", Name(.key))]
    NoSetting {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// The kind of model is not known.
    #[error("{path}: model_type {} is not supported; known: {known}", Name(.found))]
    Family {
        /// `config.json`.
        path: PathBuf,
        /// `model_type`.
        found: String,
        /// The model types that are known.
        known: String,
    },
    /// A tensor that the model needs is not there.
    #[error("tensor {} is missing; the model is incomplete, or a variant that is not supported", Name(.name))]
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// Tensors that the family does not have.
    #[error(
        "{count} tensors are not weights of a {family} model, the first is {}; it is a variant that is not supported, and \
         leaving them out would change it",
        Name(.first)
    )]
    UnusedTensors {
        /// How many.
        count: usize,
        /// The first.
        first: String,
        /// `model_type`.
        family: String,
    },
    /// The elements of a tensor are of a type that is not read.
    #[error("tensor {}: dtype {found} is not supported; known: {known}", Name(.name))]
    Dtype {
        /// The tensor.
        name: String,
        /// Its dtype.
        found: String,
        /// What is supported there.
        known: &'static str,
    },
    /// A tensor has another shape than `config.json` says.
    #[error("tensor {} has shape {found:?}, {expected}; the model is damaged, or config.json belongs to another", Name(.name))]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape, outermost dimension first.
        found: Vec<u64>,
        /// What is expected.
        expected: String,
    },
    /// There is no tokenizer.
    #[error("{folder} has neither tokenizer.json nor tokenizer.model; fetch one of them too")]
    NoTokenizer {
        /// The folder.
        folder: PathBuf,
    },
    /// The tokenizer is of a kind that is not supported.
    #[error("{path}: {found} is not supported; known: {known}")]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
        /// What is supported.
        known: &'static str,
    },
    /// The tokenizer's file is damaged.
    #[error("{path}: {problem}")]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// How the tokenizer cuts text into words is not known.
    #[error(
        "{path}: this pre-tokenizer is not known: {found}; if you know which one it equals, name it (--pre); known: {known}"
    )]
    PreTokenizer {
        /// The file.
        path: PathBuf,
        /// Its steps.
        found: String,
        /// The names of those that are known.
        known: String,
    },
    /// What was converted is not a model that gristmill runs.
    #[error("converted, this is not a model that gristmill runs: {0}")]
    Unrunnable(crate::Error),
    /// A weight cannot be expressed in its new format.
    #[error("tensor {}: {source}", Name(.name))]
    Weights {
        /// The tensor.
        name: String,
        /// Which element, and why.
        source: TranscodeError,
    },
    /// No format fits.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// The caller stopped.
    #[error("stopped; nothing was written")]
    Stopped,
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Parses a JSON file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ConvertError> {
    let bytes = fs::read(path).map_err(|source| ConvertError::Read { path: path.to_owned(), source })?;
    serde_json::from_slice(&bytes).map_err(|source| ConvertError::Json { path: path.to_owned(), source })
}

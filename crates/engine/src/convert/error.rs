//! Why a folder could not be converted.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use gristmill_cpu::TranscodeError;
use thiserror::Error;

use super::safetensors::SafetensorsError;
use crate::gguf::{Name, WriteError};
use crate::quantize::{PieceError, QuantizeError};

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
    /// What should be a file is something else.
    #[error("{path} is a folder, a pipe or a device, not a file; put the model's own file in its place")]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// A file beside the weights is longer than any of its kind.
    #[error("{path} has more than {limit} bytes; no model has such a file, fetch it again")]
    LongFile {
        /// The file.
        path: PathBuf,
        /// The most bytes that it may have.
        limit: u64,
    },
    /// What was given is not a folder.
    #[error("{path} is not a folder; give the folder of a model as Hugging Face publishes it")]
    NoFolder {
        /// The path.
        path: PathBuf,
    },
    /// A JSON file cannot be parsed.
    #[error("{path} is not as it should be: {}; it is damaged, fetch it again", json_problem(.source))]
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
    #[error("{index}: {} is not the name of a file beside it", Name(.name))]
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
        /// Its value, with the type if that is wrong.
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
    /// A pre-tokenizer was named for a tokenizer that has none.
    #[error("{path}: a SentencePiece tokenizer has no pre-tokenizer; leave out --pre ({})", Name(.pre))]
    PreUnused {
        /// The file of the tokenizer.
        path: PathBuf,
        /// What was named.
        pre: String,
    },
    /// What was converted is not a model that gristmill runs.
    #[error("converted, this is not a model that gristmill runs: {0}")]
    Unrunnable(crate::Error),
    /// A weight is not finite, or cannot be expressed in its new format.
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

impl From<PieceError> for ConvertError {
    fn from(error: PieceError) -> Self {
        match error {
            PieceError::Weights { name, source } => Self::Weights { name, source },
            PieceError::Stopped => Self::Stopped,
            PieceError::Write(error) => Self::Write(error),
        }
    }
}

/// The beginning of a text, for a message: what strangers' files hold may be of any length.
pub(super) fn cut(text: impl Display, chars: usize) -> String {
    let mut text = text.to_string();
    if let Some((end, _)) = text.char_indices().nth(chars) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// What is wrong with JSON, and where. The message of `serde_json` may quote a value of any length, before the place.
pub(super) fn json_problem(error: &serde_json::Error) -> String {
    const SHOWN: usize = 300;
    let whole = WORDS.iter().fold(error.to_string(), |text, (theirs, ours)| text.replace(theirs, ours));
    let shown = cut(&whole, SHOWN);
    match shown == whole {
        true => whole,
        false => format!("{shown} at line {} column {}", error.line(), error.column()),
    }
}

/// `serde` names what it expected by Rust's types.
const WORDS: &[(&str, &str)] = &[
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected u64", "expected a whole number of at least 0"),
    ("expected a map", "expected an object"),
    ("expected a sequence", "expected a list"),
    ("invalid type: map", "invalid type: object"),
    ("invalid type: sequence", "invalid type: list"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::json_problem;

    #[test]
    fn json_is_explained_without_types_of_rust() {
        for (json, says) in [
            (r#"{"a": -1}"#, "integer `-1`, expected a whole number from 0 to 4294967295"),
            (r#"{"a": [1]}"#, "invalid type: list, expected a whole number"),
            ("[1]", "invalid type: list, expected an object"),
        ] {
            let problem = json_problem(&serde_json::from_str::<BTreeMap<String, u32>>(json).expect_err("it is wrong"));
            assert!(problem.contains(says) && problem.contains("line 1"), "{problem}");
        }
    }
}

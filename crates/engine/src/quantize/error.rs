//! Why a model could not be quantised.

use std::path::PathBuf;

use gristmill_cpu::TranscodeError;
use gristmill_kernels::format::Format;
use thiserror::Error;

use super::{Mix, PieceError};
use crate::gguf::{GgufError, Name, WriteError};

/// Why a model could not be quantised. Every message says what was wrong, where, and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// No mix has this name.
    #[error("there is no mix {}; known are {}", Name(.name), names(Mix::all().iter().map(Mix::name)))]
    Mix {
        /// What was asked for.
        name: String,
    },
    /// No format has this name.
    #[error("there is no format {}; known are {}", Name(.name), names(Format::ALL.iter().map(|f| f.name())))]
    Format {
        /// What was asked for.
        name: String,
    },
    /// An exception cannot be read.
    #[error("{} is not PATTERN=FORMAT, as in output.weight=Q8_0 or blk.0.*=F16", Name(.text))]
    Keep {
        /// What was given.
        text: String,
    },
    /// A pattern matches nothing.
    #[error("pattern {} matches {}", Name(.pattern), no_match(*.small))]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// It matches tensors that are never quantised.
        small: bool,
    },
    /// The output is (a part of) the input.
    #[error("{}: the output is the input; name another file", .path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
    },
    /// The output is a folder or a device.
    #[error("{}: this is a folder or a device; name a file", .path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// There is already a file.
    #[error("{}: the file exists; name another one, or replace it with --force", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The weights of a tensor cannot be encoded.
    #[error("tensor {}: {source}; the file is damaged or badly converted", Name(.name))]
    Weights {
        /// The tensor.
        name: String,
        /// What is wrong with them.
        source: TranscodeError,
    },
    /// The caller's progress function asked to stop.
    #[error("stopped; nothing was written")]
    Stopped,
    /// The input cannot be read.
    #[error(transparent)]
    Read(#[from] GgufError),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The threads cannot be started.
    #[error(transparent)]
    Kernel(#[from] gristmill_kernels::Error),
}

impl From<PieceError> for QuantizeError {
    fn from(error: PieceError) -> Self {
        match error {
            PieceError::Weights { name, source } => Self::Weights { name, source },
            PieceError::Stopped => Self::Stopped,
            PieceError::Write(error) => Self::Write(error),
        }
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn no_match(small: bool) -> &'static str {
    match small {
        true => "only tensors that are never quantised (norms, biases, routers); they stay as they are",
        false => "no tensor; `gristmill inspect --all` lists their names",
    }
}

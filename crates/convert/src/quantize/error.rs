//! Why a model could not be quantised.

use std::path::PathBuf;

use gristmill_files::gguf::{GgufError, Name, WriteError};
use gristmill_kernels::format::Format;
use thiserror::Error;

use super::mix::quantised_to;
use super::{EncodeError, Mix};

/// Why a model could not be quantised. Every message names the place, the problem and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// No mix has this name.
    #[error("there is no mix {}; known are {}", Name(.0), names(Mix::all().iter().map(Mix::name)))]
    Mix(String),
    /// No format of this name is written.
    #[error("there is no format {} to quantise to; known are {}", Name(.0), names(quantised_to().map(Format::name)))]
    Format(String),
    /// The value of `--keep` is not valid.
    #[error("{} is not PATTERN=FORMAT, as in output.weight=Q8_0 or blk.0.*=F16", Name(.0))]
    Keep(String),
    /// A pattern matches nothing.
    #[error("pattern {} matches {}", Name(.pattern), no_match(*.small))]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// It matches tensors that are never quantised.
        small: bool,
    },
    /// A weight whose scale is another tensor would get another format.
    #[error(
        "tensor {} is NVFP4 with a scale in {}, which other formats do not have; quantise the unquantised model", Name(.name), Name(.scale)
    )]
    Scaled {
        /// The weight.
        name: String,
        /// Its scale.
        scale: String,
    },
    /// The output is (a part of) the input.
    #[error("{0}: the output is the input; name another file")]
    SameFile(PathBuf),
    /// The output is a folder or a device.
    #[error("{0}: this is a folder or a device; name a file")]
    NoFile(PathBuf),
    /// There is already a file.
    #[error("{0}: the file exists; name another one, or allow replacing it")]
    Exists(PathBuf),
    /// The tensors cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
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

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn no_match(small: bool) -> &'static str {
    match small {
        true => "only tensors that are never quantised (norms, biases, routers); they stay as they are",
        false => "no tensor; name a tensor of the model",
    }
}

//! Why a synthetic model cannot be made.

use gristmill_convert::quantize::QuantizeError;
use gristmill_files::gguf::WriteError;
use thiserror::Error;

use super::shapes::MAX_LAYERS;

/// Why a synthetic model cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SyntheticError {
    /// Unknown model.
    #[error("there is no synthetic model `{name}`; known are {known}")]
    Model {
        /// The requested name.
        name: String,
        /// All names.
        known: String,
    },
    /// Unknown mix or format.
    #[error("there is no format `{name}` for a synthetic model; known are {known}")]
    Mix {
        /// The requested name.
        name: String,
        /// All names.
        known: String,
    },
    /// No folder is written of this model.
    #[error("no folder is written of `{name}`; GPTQ and FP8 are for the architectures {known} without -mtp")]
    Folder {
        /// The requested name.
        name: String,
        /// The architectures.
        known: String,
    },
    /// The number of layers is out of range.
    #[error("--layers must be 1 to {max}, found {0}", max = MAX_LAYERS)]
    Layers(u32),
    /// No format fits a tensor.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// The caller stopped the work. The partial file is removed.
    #[error("stopped; nothing was written")]
    Stopped,
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

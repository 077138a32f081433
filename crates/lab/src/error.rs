//! Why a measurement fails.

use std::io;
use std::path::PathBuf;

use gristmill_convert::quantize::QuantizeError;
use gristmill_engine::{EngineError, kernels};
use gristmill_files::gguf::{GgufError, WriteError};
use gristmill_text::tokenizer::TokenizerError;
use thiserror::Error;

use crate::synthetic::SyntheticError;

/// Why a measurement fails.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The model cannot be loaded or run.
    #[error(transparent)]
    Model(#[from] gristmill_engine::Error),
    /// A request fails.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The device fails.
    #[error(transparent)]
    Kernel(#[from] kernels::Error),
    /// The text has no tokens.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// There is no such synthetic model.
    #[error(transparent)]
    Synthetic(#[from] SyntheticError),
    /// The model cannot be quantised.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] GgufError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The number of tokens overflows.
    #[error("the step has more tokens than can be counted")]
    StepTokens,
    /// The number of tokens overflows.
    #[error("a sequence has more tokens than can be counted")]
    SequenceTokens,
    /// No case of a suite has this name.
    #[error("no model of the suite is called {name}; it has {known}")]
    Case {
        /// The requested name.
        name: String,
        /// All names.
        known: String,
    },
    /// Experts are forced in a model without experts.
    #[error("the model has no experts, so a pass cannot be forced to use some")]
    NoExperts,
    /// A trace of experts cannot be opened.
    #[error("{}: cannot be read: {reason}", path.display())]
    OpenTrace {
        /// The trace.
        path: PathBuf,
        /// Of the system.
        reason: io::Error,
    },
    /// A line of a trace of experts is not one of this model.
    #[error("{}: line {line}: {reason}", path.display())]
    TraceLine {
        /// The trace.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A trace without a line.
    #[error("{}: the trace is empty (expected a line for each token); write one with `experts --trace FILE`", .0.display())]
    EmptyTrace(PathBuf),
    /// A text of less than one window.
    #[error("the text has {found} tokens, one window has {window}; use a longer text, or smaller windows")]
    ShortText {
        /// Tokens of the text.
        found: usize,
        /// Tokens of a window.
        window: usize,
    },
    /// Saved logits that do not belong to this measurement.
    #[error("{}: {reason}", path.display())]
    SavedLogits {
        /// Their file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A row of logits that no model gives.
    #[error("a row of logits does not have the size of the vocabulary")]
    RowSize,
    /// The caller stopped the work. Its partial file is removed.
    #[error("stopped; nothing was written")]
    Stopped,
}

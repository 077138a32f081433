//! GGUF files, tokenizers, chat templates, the model runner, and the parser of replies.
//!
//! ```text
//! file ── gguf ──► metadata + tensors ── model ──► spec, weights          (Model: shared, immutable)
//! tokens of several sequences ── batch ──► runner: state + forward ──► logits ──► sample
//! ```
//! [`Plan`] says what memory a model takes before it is loaded; [`Model`] loads it; a [`Runner`] runs it, and an [`Engine`]
//! serves requests with a runner.
//!
//! The crate has no SIMD, and one thread of its own: that of an [`Engine`], which owns the runner (and one with a deep stack
//! while a grammar is compiled). Threads that compute belong
//! to the backends (`gristmill-cpu`); those that transcode weights to its [`Transcoder`](gristmill_cpu::Transcoder).

#![forbid(unsafe_code)]

pub mod engine;
pub mod model;

mod batch;
mod device;
mod error;
pub mod machine;
mod notice;
mod plan;
mod ready;
mod runner;
mod state;

pub use batch::{Batch, Outputs};
pub use device::{Opened, default_threads, open_device};
pub use engine::{
    ConverseOptions, Dry, EmbeddingRequest, Embeddings, Engine, EngineError, Finish, FinishReason, Generation, Grammar,
    Logprob, Piece, Prompt, Request, SamplingOptions, Stats, ToolChoice, Usage,
};
pub use error::{Error, Result};
pub use gristmill_files::gguf;
pub use gristmill_kernels::act::Precision;
pub use gristmill_kernels::kv::KvFormat;
pub use gristmill_kernels::ops::Sampling;
pub use gristmill_text::template::Chat;
pub use gristmill_text::{clock, reply, template, tokenizer};
pub use model::{LoadOptions, Model, ModelInfo, Progress, Stage};
pub use notice::Notice;
pub use plan::{DEFAULT_CONTEXT, Limits, MAX_CONTEXT, Plan};
pub use runner::{Logits, Runner};
pub use state::{KvUsage, SequenceId};

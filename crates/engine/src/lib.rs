//! Models, their state, and a scheduler of requests.
//!
//! ```text
//! file ── gguf ──► metadata + tensors ── model ──► spec, weights          (Model: shared, immutable)
//! tokens of several sequences ── batch ──► runner: state + forward ──► logits ──► sample
//! ```
//! [`Plan`] says what memory a model takes before it is loaded; [`Model`] loads it; a [`Runner`] runs it, and an
//! [`Engine`] serves requests with a runner.
//!
//! Reading files is the work of `gristmill-files` ([`gguf`]), that of texts of `gristmill-text` ([`tokenizer`],
//! [`template`], [`reply`]). The crate has no SIMD, and one thread of its own: that of an [`Engine`], which owns the
//! runner. Threads that compute belong to the backends.

#![forbid(unsafe_code)]

pub mod engine;
pub mod model;

mod batch;
mod device;
mod error;
mod limits;
mod load;
pub mod machine;
mod notice;
mod plan;
mod ready;
mod runner;
mod stage;
mod state;

pub use batch::{Batch, Outputs};
pub use device::{Opened, default_threads, open_device};
pub use engine::{
    ConverseOptions, Dry, EmbeddingRequest, Embeddings, Engine, EngineError, Finish, FinishReason, Generation, Grammar,
    Logprob, ModelTemplate, Piece, Prompt, Request, SamplingOptions, Stats, ToolChoice, Usage,
};
pub use error::{Error, Result};
pub use gristmill_files::gguf;
pub use gristmill_kernels::act::Precision;
pub use gristmill_kernels::kv::{KV_BLOCK, KvFormat};
pub use gristmill_kernels::ops::Sampling;
pub use gristmill_text::template::Chat;
pub use gristmill_text::{clock, reply, template, tokenizer};
pub use limits::{DEFAULT_CONTEXT, Limits, MAX_CONTEXT};
pub use load::{LoadOptions, Progress};
pub use model::{Model, ModelInfo};
pub use notice::Notice;
pub use plan::Plan;
pub use runner::{Drawn, GraphUsage, Logits, RoutingTrace, Runner};
pub use stage::Stage;
pub use state::{KvUsage, SequenceId};

/// The Rust of these pages compiles.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
}

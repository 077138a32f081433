//! Requests of models: a scheduler, conversations, grammars, draft tokens.
//!
//! [`Model`] and [`Runner`] come from `gristmill-model`, whose items are re-exported here. An [`Engine`] serves
//! requests with a runner. [`tokenizer`], [`template`] and [`reply`] come from `gristmill-text`. The crate has one
//! thread for each [`Engine`], which owns the runner.

#![forbid(unsafe_code)]

pub mod engine;

pub use engine::{
    ConverseOptions, Dry, EmbeddingRequest, Embeddings, Engine, EngineError, Finish, FinishReason, Generation, Grammar,
    Logprob, ModelTemplate, Piece, Prompt, Request, SamplingOptions, Stats, ToolChoice, Usage,
};
pub use gristmill_model as model;
pub use gristmill_model::{
    Batch, DEFAULT_CONTEXT, Error, GraphUsage, KV_BLOCK, KvFormat, KvUsage, Limits, LoadOptions, Logits, MAX_CONTEXT,
    Model, ModelInfo, Notice, Opened, Outputs, Plan, Precision, Progress, Result, RoutingTrace, Runner, SampledTokens,
    Sampling, SequenceId, Stage, default_threads, gguf, machine, open_device,
};
pub use gristmill_text::template::Chat;
pub use gristmill_text::{clock, reply, template, tokenizer};

/// The Rust of these pages compiles.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
}

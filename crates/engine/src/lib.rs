//! Requests of models: a scheduler, conversations, grammars, draft tokens.
//!
//! A [`Model`] and the [`Runner`] of its passes are those of `gristmill-model`, whose items are here too; an [`Engine`]
//! serves requests with a runner. The maths of texts is that of `gristmill-text` ([`tokenizer`], [`template`],
//! [`reply`], [`grammar`]). The crate has one thread of its own: that of an [`Engine`], which owns the runner.
//!
//! ```no_run
//! use gristmill_engine::template::{Chat, Message, Role};
//! use gristmill_engine::{ConverseOptions, Engine, GenerationOptions, Limits, LoadOptions, Model};
//!
//! let model = Model::open("model.gguf", LoadOptions::default())?;
//! let engine = Engine::start(model.into(), Limits::default())?;
//! let mut chat = Chat::new(vec![Message::new(Role::User, "Why is the sky blue?")]);
//! let (reply, _) = engine.reply(chat.clone(), ConverseOptions::default(), GenerationOptions::default())?.wait()?;
//! println!("{}", reply.content);
//! // The answer is a message of the next turn.
//! chat.messages.push(reply.into());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The [`guide`] has programs that stream a reply and that call tools.
//!
//! Every type in the signatures of this crate is reachable from it: kernels' in [`kernels`], files' in [`gguf`], JSON in
//! [`serde_json`].
//! `examples/stream.rs` makes a generation an asynchronous `Stream`.
//!
//! In a development build, copy these lines into the `Cargo.toml` of your workspace. Without optimisation, the kernels are
//! 40 times slower, and cargo ignores the profiles of dependencies:
//!
//! ```toml
//! [profile.dev.package.gristmill-kernels]
//! opt-level = 3
//!
//! [profile.dev.package.gristmill-cpu]
//! opt-level = 3
//! codegen-units = 1
//! overflow-checks = false
//! debug-assertions = false
//! ```

#![forbid(unsafe_code)]

mod converse;
mod draft;
mod dry;
mod embedding;
mod engine;
mod error;
mod fair;
mod generation;
#[doc = include_str!("../library.md")]
pub mod guide {}
mod job;
mod logprob;
mod options;
mod output;
mod pictures;
mod prefill_budget;
mod prompt;
mod reasoning;
pub mod receipt;
mod reply_stream;
mod request;
mod sampling;
mod schedule;
mod script;
mod seed;
mod stats;
mod stop;
mod submit;
mod worker;

pub use converse::{ChatImage, Conversation, ConverseOptions, ModelTemplate, ToolChoice, Unenforced, check_tools};
pub use draft::{DraftSource, Drafts};
pub use dry::Dry;
pub use embedding::EmbeddingRequest;
pub use engine::Engine;
pub use error::{EngineError, ErrorKind, TokenList};
pub use generation::{Canceller, Generation};
pub use gristmill_kernels as kernels;
pub use gristmill_kernels::Backend;
pub use gristmill_kernels::ops::{SETTINGS, SamplingOptions, Setting};
pub use gristmill_kernels::tensor::DeviceId;
pub use gristmill_model as model;
pub use gristmill_model::{
    Batch, DEFAULT_CONTEXT, Error, ExpertPlacement, ForcedExperts, GraphUsage, KV_BLOCK, KvEvent, KvFormat, KvListener,
    KvParent, KvUsage, Limits, LoadOptions, Logits, MAX_CONTEXT, Model, ModelInfo, Notice, Opened, Outputs, Placed,
    PlacementNote, Plan, Precision, Progress, Reranker, RoutingTrace, Runner, SampledTokens, Sampling, SequenceId,
    Stage, default_threads, gguf, machine, open_device, place, place_experts,
};
pub use gristmill_text::grammar::{Grammar, GrammarError, closed_schema};
pub use gristmill_text::template::Chat;
pub use gristmill_text::{clock, grammar, reply, serde_json, template, tokenizer};
pub use gristmill_vision as vision;
pub use logprob::Logprob;
pub use options::GenerationOptions;
pub use output::{DraftPlace, Drafting, Embeddings, Finish, FinishReason, Piece, Usage, Wanted};
pub use pictures::Pictures;
pub use prompt::{Prompt, PromptImage};
pub use reasoning::ReasoningLimit;
pub use reply_stream::{ReplyParser, ReplyStream, StreamEvent};
pub use request::Request;
pub use sampling::{check_sampling, requested_value};
pub use script::Script;
pub use stats::{Distribution, ExpertLoad, Stats, Times};
pub use submit::{Choices, Pledge, Reservation};

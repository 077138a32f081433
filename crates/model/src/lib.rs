//! Models: from a file to logits.
//!
//! ```text
//! file ── gguf ──► metadata + tensors ── family ──► spec, weights          (Model: shared, immutable)
//! tokens of several sequences ── batch ──► runner: state + forward pass ──► logits ──► sample
//! ```
//! [`spec`] describes a model as data; `family` reads it from metadata, one folder for each family. `program` builds a
//! forward pass from it, as data too: weights, values and operations. [`Plan`] computes the memory of a model before it
//! is loaded; [`Model`] loads it, and a [`Runner`] runs it.
//!
//! Reading files is the work of `gristmill-files` ([`gguf`]), that of tokens of `gristmill-text`. The crate has no SIMD
//! and no thread: threads that compute belong to the backends.

#![forbid(unsafe_code)]

pub mod machine;
pub mod spec;

mod batch;
mod device;
mod error;
#[doc(hidden)]
pub mod family;
mod heads;
mod info;
mod inspect;
mod limits;
mod load;
mod model;
mod notice;
mod placement;
mod plan;
mod program;
mod ranks;
mod ready;
mod reranker;
mod rope;
mod runner;
mod sampling;
mod stage;
mod state;
mod templates;
mod tower;
mod vocabulary;
mod weights;

#[cfg(test)]
#[allow(dead_code)]
#[path = "../tests/model/tiny.rs"]
mod tiny;

pub use batch::{Batch, Outputs};
pub use device::{Opened, default_threads, open_device};
pub use error::{Error, Result};
pub use family::check_architecture;
pub use gristmill_files::gguf;
pub use gristmill_kernels::act::Precision;
pub use gristmill_kernels::kv::{KV_BLOCK, KvFormat};
pub use gristmill_kernels::ops::Sampling;
pub use heads::{is_heads_file, with_heads_of};
pub use info::ModelInfo;
pub use limits::{DEFAULT_CONTEXT, Limits, MAX_CONTEXT};
pub use load::{ExpertPlacement, LoadOptions, Progress};
pub use model::Model;
pub use notice::Notice;
pub use placement::{Placed, PlacementNote, RankPlan, place, place_experts};
pub use plan::Plan;
pub use program::forced::ForcedExperts;
pub use program::tensors::column_order;
pub use program::uses::{TensorReads, TensorUse};
pub use ranks::{DEADLINE as RANK_DEADLINE, ExpertLoad, Split, SplitChoice, SplitEstimate, Sums};
pub use reranker::Reranker;
pub use runner::{DraftOrder, GraphUsage, Logits, RoutingTrace, Runner, SampledTokens};
pub use stage::Stage;
pub use state::{KvEvent, KvListener, KvParent, KvUsage, Reuse, SequenceId};
pub use templates::chat_templates;
pub use tower::{Encoder, Tower, TowerInfo, TowerSpec};
pub use vocabulary::tokenizer;
#[doc(hidden)]
pub use vocabulary::{FLAG_KEYS, flags_of_name};

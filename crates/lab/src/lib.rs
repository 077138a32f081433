//! Measurements of the models of gristmill.
//!
//! | module | question |
//! | --- | --- |
//! | [`synthetic`] | which file has random weights in the shapes of a published model? |
//! | [`mod@bench`] | how fast is a model, as a share of the machine's limit? |
//! | [`fit`] | which format of a model runs on a machine, and how fast? |
//! | [`experts`] | how often does a text use each expert? |
//! | [`routing`] | which experts are passes forced to use? |
//! | [`slots`], [`disk`] | what is expected of experts outside the device? |
//! | [`perplexity`] | how well does a model predict a text? |
//!
//! Nothing here prints: results are values with [`Display`](std::fmt::Display) and `Serialize`.
//!
//! ```
//! use gristmill_lab::synthetic::Synthetic;
//!
//! let model = Synthetic::parse("qwen3-30b-a3b:Q4_K_M", Some(4))?;
//! assert_eq!(model.file_name(), "qwen3-30b-a3b-Q4_K_M-4-layers.gguf");
//! # Ok::<(), gristmill_lab::synthetic::SyntheticError>(())
//! ```

#![forbid(unsafe_code)]

pub mod bench;
pub mod disk;
mod drafts;
mod error;
pub mod experts;
pub mod fit;
pub mod perplexity;
mod random;
pub mod routing;
pub mod slots;
pub mod synthetic;
pub mod units;

pub use drafts::drafts_line;
pub use error::LabError;

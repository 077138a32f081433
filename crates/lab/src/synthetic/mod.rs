//! Synthetic models for speed measurements: random weights in the exact shapes and formats of published models.
//!
//! `qwen3-30b-a3b:Q4_K_M` names a model of [`models::MODELS`] and a format or a mix ([`gristmill_convert::quantize`]).
//! The file is a valid GGUF file with a vocabulary of the published size, so any engine loads it; its text is random.
//! Its routers choose experts as published models do ([`shapes::Popularity`]): the residual stream is mainly the
//! token's embedding, so tokens differ, and experts are chosen unevenly, but all of them. Otherwise, each layer's
//! attention adds the mean of the context to all tokens, and after some layers they choose the same experts: a prompt
//! of 512 tokens read 36 of 128. The same name always gives the same bytes.

mod blocks;
mod channels;
mod error;
mod file;
mod folder;
mod gemma4;
mod latent;
mod mix;
mod mixers;
mod models;
mod scans;
mod shapes;
#[cfg(test)]
mod tests;
mod tower;
mod vocabulary;
mod windowed;
mod write;

pub use error::SyntheticError;
pub use file::Synthetic;
pub use models::names;
pub use tower::write_tower;
pub use write::Progress;

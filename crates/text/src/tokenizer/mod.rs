//! Text to token ids and back, from the vocabulary of a GGUF file.
//!
//! ```text
//! text ── special ──► fragments ──► normal form ── special ──► fragments ──► bpe (split into words, merge) or spm (merge by score) ──► ids
//! ids  ── token_bytes ──► bytes ── stream ──► text
//! ```
//! The results equal transformers' for the same vocabulary, except that special tokens are recognised in a text only
//! with [`EncodeOptions::parse_special`], so that a user's text cannot forge them.

mod alphabet;
mod bpe;
mod encode;
mod error;
mod family;
mod fewest;
mod merge;
mod normal;
mod special;
mod split;
mod spm;
mod stream;
mod vocabulary;

pub use encode::{EncodeOptions, Tokenizer};
pub use error::TokenizerError;
pub use family::{Family, Step};
pub use special::TokenFlags;
pub use spm::byte_token;
pub use stream::StreamDecoder;
pub use vocabulary::{TokenType, Vocabulary};

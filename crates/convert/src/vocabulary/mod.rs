//! The tokenizer and the chat template, from `tokenizer.model` or `tokenizer.json` with `tokenizer_config.json`.
//!
//! `tokenizer.model` (SentencePiece) comes first, because it has the scores that `tokenizer.json` lacks.

mod byte_level;
mod flags;
mod json;
mod merged;
mod pre;
mod read;
mod scored;
mod sentencepiece;
mod special;
mod template;
mod tokens;

pub(super) use read::read;
pub(super) use template::named_files as template_files;

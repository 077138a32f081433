//! OpenAI's endpoints, the tokenizer's endpoints, which accept the same messages, and comparisons of texts.

pub(crate) mod chat;
mod common;
pub(crate) mod completions;
mod content;
pub(crate) mod embeddings;
mod format;
mod head;
mod logprobs;
mod messages;
pub(crate) mod models;
mod namespaces;
mod prompts;
pub(crate) mod render;
pub(crate) mod rerank;
pub(crate) mod responses;
mod template;
pub(crate) mod tokens;
mod tools;
mod traces;
mod usage;
mod vectors;

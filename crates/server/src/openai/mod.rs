//! OpenAI's endpoints, the tokenizer's endpoints, which accept the same messages, and comparisons of texts.

pub(crate) mod chat;
mod common;
pub(crate) mod completions;
mod content;
pub(crate) mod embeddings;
mod format;
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

use serde::Serialize;
use utoipa::ToSchema;

use crate::models::ServedModel;
use crate::reply::{Choice, random_digits};
use crate::state::seconds;

/// The fields that every part of a reply with choices starts with.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Head {
    id: String,
    /// `chat.completion`, `chat.completion.chunk`, or `text_completion`.
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    model: String,
}

impl Head {
    /// With an id that no other reply has: the prefix and 32 random digits.
    fn new(model: &ServedModel, prefix: &str, object: &'static str) -> Head {
        let id = format!("{prefix}-{}{}", random_digits(), random_digits());
        Head { id, object, created: seconds(), model: model.name().to_owned() }
    }
}

/// OpenAI's name for the end of a choice, if it has ended.
fn finish_reason(choice: &Choice) -> Option<&'static str> {
    choice.finish?;
    Some(match choice.calls().next() {
        _ if choice.is_cut() => "length",
        Some(_) => "tool_calls",
        None => "stop",
    })
}

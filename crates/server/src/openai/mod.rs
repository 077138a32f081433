//! OpenAI's interfaces, and those of the tokenizer, which take the same messages.

pub(crate) mod chat;
mod common;
pub(crate) mod completions;
mod content;
pub(crate) mod embeddings;
mod format;
mod logprobs;
mod messages;
pub(crate) mod models;
mod prompts;
pub(crate) mod responses;
pub(crate) mod tokens;
mod tools;
mod traces;
mod usage;

use crate::reply::{Choice, random_digits};

/// OpenAI's name for the end of a choice, if it has ended.
fn finish_reason(choice: &Choice) -> Option<&'static str> {
    choice.finish?;
    Some(match choice.calls().next() {
        _ if choice.is_cut() => "length",
        Some(_) => "tool_calls",
        None => "stop",
    })
}

/// A name for a reply that no other reply has: `chatcmpl-` and 32 random digits.
fn reply_id(prefix: &str) -> String {
    format!("{prefix}-{}{}", random_digits(), random_digits())
}

//! OpenAI's interfaces.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod format;
pub(crate) mod logprobs;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod prompts;
pub(crate) mod responses;
pub(crate) mod settings;
pub(crate) mod tools;
pub(crate) mod usage;

use gristmill_engine::engine::FinishReason;

/// OpenAI's name for the end of a generation, with calls or without.
pub(crate) fn finish_reason(reason: FinishReason, has_calls: bool) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        _ if has_calls => "tool_calls",
        _ => "stop",
    }
}

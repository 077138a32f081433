//! What replies of both endpoints for choices share.

use serde::Serialize;
use utoipa::ToSchema;

use crate::models::ServedModel;
use crate::reply::{Choice, random_digits};
use crate::state::seconds;

/// The fields that every part of a reply with choices starts with.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Head {
    id: String,
    /// `chat.completion`, `chat.completion.chunk`, or `text_completion`.
    pub(super) object: &'static str,
    /// Seconds since 1970.
    created: u64,
    model: String,
}

impl Head {
    /// With an id that no other reply has: the prefix and 32 random digits.
    pub(super) fn new(model: &ServedModel, prefix: &str, object: &'static str) -> Head {
        let id = format!("{prefix}-{}{}", random_digits(), random_digits());
        Head { id, object, created: seconds(), model: model.name().to_owned() }
    }
}

/// OpenAI's name for the end of a choice, if it has ended.
pub(super) fn finish_reason(choice: &Choice) -> Option<&'static str> {
    choice.finish?;
    Some(match choice.calls().next() {
        _ if choice.is_cut() => "length",
        Some(_) => "tool_calls",
        None => "stop",
    })
}

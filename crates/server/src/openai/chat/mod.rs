//! `/v1/chat/completions`.

pub(crate) mod endpoint;
mod write;

pub(crate) use endpoint::{ChatRequest, conversation_of, request};
pub(crate) use write::ChatChunk;

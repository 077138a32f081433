//! Anthropic's interface: `/v1/messages`.

mod blocks;
pub(crate) mod endpoints;
mod messages;
mod tools;
mod write;

//! `/v1/responses`, without state.

pub(crate) mod endpoint;
mod input;
mod items;
mod object;
mod others;
mod write;

pub(crate) use endpoint::{ResponsesRequest, request};
pub(crate) use write::ResponseEvent;

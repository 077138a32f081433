//! `/v1/responses`.

mod continued;
pub(crate) mod endpoint;
mod input;
mod items;
mod kept;
mod object;
mod others;
pub(crate) mod stored;
mod write;

pub(crate) use endpoint::{ResponsesRequest, request};
pub(crate) use kept::KeptResponses;
pub(crate) use write::ResponseEvent;

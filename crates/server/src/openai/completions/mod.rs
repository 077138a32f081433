//! `/v1/completions`: texts to be continued.

pub(crate) mod endpoint;
mod write;

pub(crate) use endpoint::{CompletionRequest, request};

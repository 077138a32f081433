//! The server over HTTP, with tiny random models that can speak.

#[allow(dead_code)]
#[path = "../../../engine/tests/model/tiny.rs"]
mod tiny;

#[path = "../../../engine/tests/engine/speech.rs"]
mod speech;

mod anthropic;
mod chat;
mod completions;
mod faults;
mod many;
mod others;
mod refuse;
mod responses;
mod server;
mod structured;

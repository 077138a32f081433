//! The server over HTTP, with tiny random models that can speak.

#[allow(dead_code)]
#[path = "../../../model/tests/model/tiny.rs"]
mod tiny;

#[path = "../../../engine/tests/engine/speech.rs"]
mod speech;

#[path = "../../../engine/tests/engine/damaged.rs"]
mod damaged;

#[expect(dead_code, reason = "the engine's tests alone have a device that runs behind the host")]
#[path = "../../../engine/tests/engine/failing.rs"]
mod failing;

#[path = "../../../engine/tests/grammar/hostile.rs"]
mod hostile;

mod agents;
mod anthropic;
mod bombs;
mod broken;
mod chat;
mod completions;
mod continued;
mod deferred;
mod embeddings;
mod faults;
mod fields;
mod figures;
mod histories;
mod images;
mod injection;
mod keys;
mod known;
mod kv_events;
mod many;
mod models;
mod mounted;
mod nested;
mod numbers;
mod others;
mod page;
mod probes;
mod protocol;
mod receipts;
mod refuse;
mod rerank;
mod responses;
mod routers;
mod scripted;
mod server;
mod slow;
mod structured;
mod templates;

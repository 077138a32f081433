//! An engine for targets that need one: a tiny model that speaks, with a context of 48 tokens.

use std::sync::Arc;

use gristmill_engine::{Engine, Limits, LoadOptions, Model};

#[allow(dead_code)]
#[path = "../crates/model/tests/model/tiny.rs"]
mod tiny;

#[allow(dead_code)]
#[path = "../crates/engine/tests/engine/speech.rs"]
mod speech;

/// Starts an engine for two sequences. Its weights are the same in each run, so that a crash can be repeated.
pub fn start() -> Engine {
    let mut model = tiny::Tiny::llama();
    speech::teach(&mut model);
    let options = LoadOptions { device: "cpu".to_owned(), threads: Some(1), ..LoadOptions::default() };
    let model = Model::from_file(model.file(&mut tiny::Random(1)), options).expect("a good model");
    let limits = Limits { context: Some(48), sequences: 2, batch_tokens: 16, ..Limits::default() };
    Engine::start(Arc::new(model), limits).expect("it fits").with_queue(4)
}

/// Lets panics of llguidance pass, which the engine catches and reports as errors. Every other panic is a crash.
pub fn allow_caught_panics() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let caught = ["llguidance", "derivre", "toktrie"];
        if !panic.location().is_some_and(|place| caught.iter().any(|name| place.file().contains(name))) {
            abort(panic);
        }
    }));
}

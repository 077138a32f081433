//! Two engines in one process, each with threads of its own, and several requests in one of them:
//! `cargo run --release --example two_engines -- MODEL.gguf [OTHER.gguf]`.

use std::error::Error;
use std::sync::Arc;

use gristmill_engine::{Engine, EngineError, Generation, Limits, LoadOptions, Model, Request, SamplingOptions};

/// Loads a model onto one thread, and starts an engine for this many requests at a time.
fn start(path: &str, sequences: usize) -> Result<Engine, Box<dyn Error>> {
    let model = Model::open(path, LoadOptions { threads: Some(1), ..LoadOptions::default() })?;
    let limits = Limits { context: Some(model.spec().context_length.min(512)), sequences, ..Limits::default() };
    Ok(Engine::start(Arc::new(model), limits)?)
}

fn ask(engine: &Engine, text: &str) -> Result<Generation, EngineError> {
    let sampling = SamplingOptions::greedy();
    engine.generate(Request { sampling, max_tokens: Some(20), ..Request::new(text) })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: two_engines MODEL.gguf [OTHER.gguf]")?;
    let other = arguments.next().unwrap_or_else(|| path.clone());
    let (one, two) = (start(&path, 2)?, start(&other, 1)?);
    // All three run at the same time: the first two in one batch.
    let running = [
        ("one", ask(&one, "The capital of France is")?),
        ("one", ask(&one, "Water boils at")?),
        ("two", ask(&two, "Once upon a time")?),
    ];
    for (name, generation) in running {
        let text: String = generation.map(|piece| Ok(piece?.text)).collect::<Result<_, EngineError>>()?;
        println!("{name}: {}", text.trim());
    }
    Ok(())
}

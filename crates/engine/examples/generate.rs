//! Answers a question: `cargo run --release --example generate -- MODEL.gguf QUESTION`.
//!
//! The answer comes piece by piece; dropping the iterator would end it at once.

use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;

use gristmill_engine::template::Message;
use gristmill_engine::{Chat, Engine, Limits, LoadOptions, Model, Prompt, Request, SamplingOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let (Some(path), Some(question)) = (std::env::args().nth(1), std::env::args().nth(2)) else {
        return Err("usage: generate MODEL.gguf QUESTION".into());
    };
    let model = Arc::new(Model::open(path, LoadOptions::default())?);
    let prompt: Prompt = match model.template() {
        Some(_) => Chat::new(vec![Message::new("user", question)]).into(),
        None => question.into(),
    };
    let engine = Engine::start(model, Limits::default())?;
    let sampling = SamplingOptions { temperature: 0.5, seed: Some(42), ..SamplingOptions::default() };
    for piece in engine.generate(Request { sampling, max_tokens: Some(200), ..Request::new(prompt) })? {
        let piece = piece?;
        print!("{}", piece.text);
        stdout().flush()?;
        if let Some(finish) = piece.finish {
            println!("\n{:?}, {:.1} tok/s", finish.reason, finish.usage.decode_rate().unwrap_or(0.0));
        }
    }
    Ok(())
}

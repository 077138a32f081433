//! Text from a model, as it comes: `cargo run --release --example generate -- MODEL.gguf TEXT`.

use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;

use gristmill_engine::{Engine, Limits, LoadOptions, Model, Request};

fn main() -> Result<(), Box<dyn Error>> {
    let (Some(path), Some(text)) = (std::env::args().nth(1), std::env::args().nth(2)) else {
        return Err("usage: generate MODEL.gguf TEXT".into());
    };
    let model = Arc::new(Model::open(path, LoadOptions::default())?);
    let engine = Engine::start(model, Limits::default())?;
    let mut request = Request::new(text);
    request.max_tokens = Some(100);
    for piece in engine.generate(request)? {
        print!("{}", piece?.text);
        stdout().flush()?;
    }
    println!();
    Ok(())
}

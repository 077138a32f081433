//! A model with a sampler of one's own: `cargo run --release --example forward -- MODEL.gguf TEXT`.
//!
//! Plans memory first, loads the model, and continues the text greedily, one forward pass at a time.

use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;

use gristmill_engine::gguf::GgufFile;
use gristmill_engine::tokenizer::{EncodeOptions, StreamDecoder};
use gristmill_engine::{Batch, Limits, LoadOptions, Model, ModelInfo, Outputs, Plan, Runner, open_device};

fn main() -> Result<(), Box<dyn Error>> {
    let (Some(path), Some(text)) = (std::env::args().nth(1), std::env::args().nth(2)) else {
        return Err("usage: forward MODEL.gguf TEXT".into());
    };
    let file = GgufFile::open(path)?;
    let limits = Limits::default();
    let options = LoadOptions::default();
    let device = open_device(&options)?.backend;
    let plan = Plan::new(&ModelInfo::read(&file)?, &limits, options.precision, &device)?;
    eprintln!("{} bytes for a context of {} tokens", plan.total(), plan.context);
    plan.check()?;

    let model = Arc::new(Model::with_backend(file, device, options)?);
    let tokenizer = model.tokenizer()?;
    let mut runner = Runner::new(model.clone(), limits)?;
    let sequence = runner.open_sequence()?;
    let mut batch = Batch::new();
    let prompt = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false })?;
    let (chunks, last) = prompt.split_at(prompt.len().saturating_sub(limits.batch_tokens));
    for chunk in chunks.chunks(limits.batch_tokens) {
        batch.clear();
        runner.forward(batch.push(sequence, chunk, Outputs::None))?;
    }
    let (mut next, mut decoder) = (last.to_vec(), StreamDecoder::continuing(true));
    for _ in 0..100 {
        batch.clear();
        let mut logits = runner.forward(batch.push(sequence, &next, Outputs::Last))?;
        next = logits.argmax()?;
        if next.iter().any(|&token| tokenizer.is_end_of_generation(token)) {
            break;
        }
        for &token in &next {
            print!("{}", decoder.push(tokenizer, token)?);
        }
        stdout().flush()?;
    }
    println!();
    Ok(())
}

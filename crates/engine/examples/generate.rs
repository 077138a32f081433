//! Answers a question: `cargo run --release --example generate -- MODEL.gguf QUESTION`.
//!
//! The answer comes piece by piece, its reasoning in parentheses; dropping the iterator would end it at once.

use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;

use gristmill_engine::reply::{ReplyEvent, ReplyForm};
use gristmill_engine::template::{Message, Role};
use gristmill_engine::{Chat, ConverseOptions, Engine, Limits, LoadOptions, Model, Request, SamplingOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let (Some(path), Some(question)) = (std::env::args().nth(1), std::env::args().nth(2)) else {
        return Err("usage: generate MODEL.gguf QUESTION".into());
    };
    let model = Arc::new(Model::open(path, LoadOptions::default())?);
    let engine = Engine::start(model, Limits::default())?;
    let (request, form) = match engine.template() {
        Some(_) => {
            let chat = Chat::new(vec![Message::new(Role::User, question)]);
            engine.converse(chat, ConverseOptions::default())?
        }
        None => (Request::new(question), ReplyForm::plain()),
    };
    let sampling = SamplingOptions { temperature: 0.5, seed: Some(42), ..SamplingOptions::default() };
    let mut reply = form.parser();
    for piece in engine.generate(Request { sampling, max_tokens: Some(200), ..request })? {
        let piece = piece?;
        for event in reply.push(&piece.text) {
            match event {
                ReplyEvent::Reasoning(text) => print!("({text})"),
                ReplyEvent::Content(text) => print!("{text}"),
                ReplyEvent::ToolCall(call) => print!("{} {}", call.name, call.arguments),
            }
        }
        stdout().flush()?;
        if let Some(finish) = piece.finish {
            println!("\n{:?}, {:.1} tok/s", finish.reason, finish.usage.decode_rate().unwrap_or(0.0));
        }
    }
    Ok(())
}

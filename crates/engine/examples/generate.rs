//! Answers a question: `cargo run --release --example generate -- MODEL.gguf QUESTION`.

use std::error::Error;
use std::io::{Write, stdout};

use gristmill_engine::reply::ReplyEvent;
use gristmill_engine::template::{Message, Role};
use gristmill_engine::{Chat, ConverseOptions, Engine, GenerationOptions, Limits, LoadOptions, Model, StreamEvent};

/// Writes the answer while it is generated, with its reasoning in parentheses. Dropping the reply would cancel it.
pub fn answer(model: &str, question: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let model = Model::open(model, LoadOptions::default())?;
    let engine = Engine::start(model.into(), Limits::default())?;
    let chat = Chat::new(vec![Message::new(Role::User, question)]);
    let options = GenerationOptions { max_tokens: Some(200), ..GenerationOptions::default() };
    for event in engine.reply(chat, ConverseOptions::default(), options)? {
        match event? {
            StreamEvent::Reply(ReplyEvent::Reasoning(text)) => write!(out, "({text})")?,
            StreamEvent::Reply(ReplyEvent::Content(text)) => write!(out, "{text}")?,
            StreamEvent::Finish(finish) => writeln!(out, "\n{}", finish.reason.name())?,
            _ => {}
        }
        out.flush()?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match (std::env::args().nth(1), std::env::args().nth(2)) {
        (Some(model), Some(question)) => answer(&model, &question, &mut stdout()),
        _ => Err("usage: generate MODEL.gguf QUESTION".into()),
    }
}

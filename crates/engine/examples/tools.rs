//! Requires a call of a tool: `cargo run --release --example tools -- MODEL.gguf QUESTION`.

use std::error::Error;
use std::io::{Write, stdout};

use gristmill_engine::serde_json::json;
use gristmill_engine::template::{Message, Role, Tool};
use gristmill_engine::{Chat, ConverseOptions, Engine, GenerationOptions, Limits, LoadOptions, Model, ToolChoice};

/// Waits for the reply, and writes its calls. Their arguments follow the tool's schema.
pub fn call(model: &str, question: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let model = Model::open(model, LoadOptions::default())?;
    let engine = Engine::start(model.into(), Limits::default())?;
    let tool = Tool {
        name: "temperature".to_owned(),
        description: Some("Measures the temperature here.".to_owned()),
        parameters: Some(json!({
            "type": "object",
            "properties": {"unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["unit"]
        })),
        ..Tool::default()
    };
    let chat = Chat { tools: vec![tool], ..Chat::new(vec![Message::new(Role::User, question)]) };
    let options = ConverseOptions { tool_choice: ToolChoice::Required, ..ConverseOptions::default() };
    let (reply, _) = engine.reply(chat, options, GenerationOptions::default())?.wait()?;
    for call in &reply.calls {
        writeln!(out, "{} {}", call.name, call.arguments)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match (std::env::args().nth(1), std::env::args().nth(2)) {
        (Some(model), Some(question)) => call(&model, &question, &mut stdout()),
        _ => Err("usage: tools MODEL.gguf QUESTION".into()),
    }
}

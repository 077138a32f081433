//! Renders chat templates: a case on each line of the input, its outcome on each line of the output.
//!
//! A case is an object with `template`, and as they are needed `messages` and `tools` in OpenAI's form,
//! `add_generation_prompt`, `bos_token`, `eos_token`, `now` (seconds since 1970) and `variables`. An outcome has `text`,
//! or `error` and whether the template was `loaded`.

use std::io::{self, BufRead, Write};
use std::time::{Duration, UNIX_EPOCH};

use gristmill_text::template::{Call, Chat, ChatTemplate, Message, RenderOptions, Role, Tool};
use serde_json::{Map, Value, json};

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        writeln!(out, "{}", outcome(&case))?;
    }
    Ok(())
}

fn outcome(case: &Value) -> Value {
    let template = match ChatTemplate::new(case["template"].as_str().unwrap_or_default()) {
        Ok(template) => template,
        Err(error) => return json!({"error": error.to_string(), "loaded": false}),
    };
    let list = |name: &str| case[name].as_array().cloned().unwrap_or_default();
    let chat = Chat {
        messages: list("messages").iter().map(message).collect(),
        tools: list("tools").iter().map(tool).collect(),
        variables: object(&case["variables"]),
        ..Chat::default()
    };
    let options = RenderOptions {
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap_or_default(),
        bos_token: text(&case["bos_token"]),
        eos_token: text(&case["eos_token"]),
        now: case["now"].as_u64().map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
        ..RenderOptions::default()
    };
    match template.render(&chat, &options) {
        Ok(text) => json!({"text": text}),
        Err(error) => json!({"error": error.to_string(), "loaded": true}),
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn message(value: &Value) -> Message {
    let role = match value["role"].as_str() {
        Some("system") => Role::System,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        _ => Role::User,
    };
    let call = |call: &Value| Call {
        id: text(&call["id"]).unwrap_or_default(),
        name: text(&call["function"]["name"]).unwrap_or_default(),
        arguments: object(&call["function"]["arguments"]).into(),
    };
    Message {
        name: text(&value["name"]),
        reasoning: text(&value["reasoning_content"]),
        calls: value["tool_calls"].as_array().into_iter().flatten().map(call).collect(),
        call_id: text(&value["tool_call_id"]),
        ..Message::new(role, value["content"].as_str().unwrap_or_default())
    }
}

fn tool(value: &Value) -> Tool {
    let function = &value["function"];
    Tool {
        name: text(&function["name"]).unwrap_or_default(),
        description: text(&function["description"]),
        parameters: function.get("parameters").cloned(),
        ..Tool::default()
    }
}

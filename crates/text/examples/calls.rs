//! For each line of JSON with a template, tools, conversations and replies: what the template does with tools, the
//! prompts of the conversations, and the calls that are read in the replies. `scripts/templates/calls.py` compares them.

use std::io::{self, BufRead, Write};
use std::time::{Duration, UNIX_EPOCH};

use gristmill_text::reply::{Joiner, ParsedReply, Reply, ReplyEvent, ReplyForm, ReplyOptions, Syntax, ToolCall};
use gristmill_text::template::{Call, Chat, ChatTemplate, Message, RenderOptions, Role, Tool, ToolSupport};
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
        Err(error) => return json!({"error": error.to_string()}),
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let options = |begins_reply: bool| RenderOptions {
        add_generation_prompt: begins_reply,
        bos_token: text(&case["bos_token"]),
        eos_token: text(&case["eos_token"]),
        now: case["now"].as_u64().map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
        ..RenderOptions::default()
    };
    let tools: Vec<Tool> = list(&case["tools"]).iter().map(tool).collect();
    let support = template.support(&options(true));
    let syntax = match support.tools {
        ToolSupport::Native(syntax) => syntax,
        _ => Syntax::generic(),
    };
    let prompt = |conversation: &Value| {
        let messages = list(&conversation["messages"]).iter().map(message).collect();
        let chat = Chat { messages, tools: tools.clone(), ..Chat::default() };
        let begins_reply = conversation["add_generation_prompt"].as_bool().unwrap_or_default();
        template.render_with_tools(&chat, &options(begins_reply)).unwrap_or_else(|error| error.to_string())
    };
    let read = |reply: &Value| {
        let (prompt, text) = (reply["prompt"].as_str().unwrap_or_default(), reply["text"].as_str().unwrap_or_default());
        let form = |syntax| ReplyForm::new(syntax, template.source(), prompt, ReplyOptions::for_tools(&tools));
        let mut found = written(text, &form(syntax));
        let derived = template.derived_form(&options(true)).map(|syntax| form(syntax).parse(text).calls);
        found["derived"] = derived.map(|calls| calls.iter().map(named).collect::<Vec<_>>()).into();
        found
    };
    json!({
        "support": support.tools.to_string(),
        "form": matches!(support.tools, ToolSupport::Native(_)).then(|| syntax.name()),
        "prompts": list(&case["conversations"]).iter().map(prompt).collect::<Vec<_>>(),
        "replies": list(&case["replies"]).iter().map(read).collect::<Vec<_>>(),
    })
}

/// The reply as it is read whole, and whether it is read so in pieces of each length.
fn written(text: &str, form: &ReplyForm) -> Value {
    let whole = form.parse(text);
    let chars: Vec<char> = text.chars().collect();
    let in_pieces = |n: usize| {
        let mut reply = form.parser();
        let mut events: Vec<ReplyEvent> = Vec::new();
        chars.chunks(n).for_each(|piece| events.extend(reply.push(&piece.iter().collect::<String>())));
        joined(events, &mut reply)
    };
    let same = (1..=chars.len()).all(|n| in_pieces(n) == whole);
    let calls: Vec<Value> = whole.calls.iter().map(named).collect();
    json!({"calls": calls, "content": whole.content, "reasoning": whole.reasoning, "same_in_pieces": same})
}

fn named(call: &ToolCall) -> Value {
    json!([call.name, call.arguments])
}

fn joined(mut events: Vec<ReplyEvent>, reply: &mut Reply) -> ParsedReply {
    events.extend(reply.finish());
    let (mut joined, mut joiner) = (ParsedReply::default(), Joiner::default());
    for event in events {
        let separator = joiner.separator(&event);
        match event {
            ReplyEvent::Reasoning(text) => joined.reasoning.extend([separator, &text]),
            ReplyEvent::Content(text) => joined.content.extend([separator, &text]),
            ReplyEvent::ToolCall(call) => joined.calls.push(call),
            other => panic!("{other:?} is a new event"),
        }
    }
    joined
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn tool(value: &Value) -> Tool {
    let function = &value["function"];
    Tool {
        name: function["name"].as_str().unwrap_or_default().to_owned(),
        description: function["description"].as_str().map(str::to_owned),
        parameters: Some(function["parameters"].clone()),
        ..Tool::default()
    }
}

fn message(value: &Value) -> Message {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let role = match value["role"].as_str() {
        Some("system") => Role::System,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        _ => Role::User,
    };
    let arguments = |call: &Value| call["function"]["arguments"].as_object().cloned().unwrap_or_else(Map::new);
    let call = |call: &Value| Call {
        id: text(&call["id"]),
        name: text(&call["function"]["name"]),
        arguments: arguments(call).into(),
    };
    Message {
        calls: list(&value["tool_calls"]).iter().map(call).collect(),
        call_id: value["tool_call_id"].as_str().map(str::to_owned),
        ..Message::new(role, text(&value["content"]))
    }
}

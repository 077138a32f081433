//! What a reply must be, and how its text is taken apart: reasoning, content, calls.

use gristmill_engine::engine::{Grammar, closed_schema};
use gristmill_engine::reply::{Reply, ReplyEvent, ReplyOptions, ToolCall};
use gristmill_engine::{Chat, Prompt, Request};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::App;
use crate::tokens::blocking;

/// What a reply must be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wanted {
    /// What the model likes: reasoning, content, calls.
    Anything,
    /// Content that follows a grammar.
    Grammar(Grammar),
    /// One call: of this tool, or of any.
    Call(Option<String>),
}

/// How replies to one prompt are read.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// The end of the prompt.
    prompt_end: String,
    reading: Reading,
    /// Whether a reply may have several calls; of others, only the first is told.
    several_calls: bool,
}

#[derive(Debug, Clone)]
enum Reading {
    Marks(ReplyOptions),
    /// All is content.
    Plain,
    /// `{"name": …, "arguments": {…}}`.
    OneCall,
}

/// Reads the pieces of one reply.
#[derive(Debug)]
pub(crate) struct Reader {
    source: Source,
    calls: usize,
    several_calls: bool,
}

#[derive(Debug)]
enum Source {
    Reply(Reply),
    /// The text of a call so far.
    OneCall(String),
}

/// One reply, whole.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    pub(crate) calls: Vec<ToolCall>,
}

/// Marks that end a prompt or open a reply, as [`gristmill_engine::reply`] knows them.
const THINK: [(&str, &str); 2] = [("<think>", "\n</think>\n\n"), ("[THINK]", "[/THINK]")];
const HARMONY: (&str, &str) = ("<|start|>assistant", "<|channel|>final<|message|>");
const HERMES_CALL: &str = "<tool_call>";

/// Renders a conversation with tools, which are functions in OpenAI's form. Gives a request for its reply, and how to read
/// it.
pub(crate) async fn request(
    app: &App,
    mut chat: Chat,
    tools: Vec<Value>,
    wanted: Wanted,
    several_calls: bool,
) -> Result<(Request, Form), ApiError> {
    let options = ReplyOptions::for_tools(&tools);
    let grammar = match &wanted {
        Wanted::Anything => None,
        Wanted::Grammar(grammar) => Some(grammar.clone()),
        Wanted::Call(name) => Some(Grammar::JsonSchema(call_schema(&tools, name.as_deref())?)),
    };
    if !tools.is_empty() {
        chat.variables.insert("tools".to_owned(), tools.into());
    }
    if grammar.is_some() {
        // It holds from the first token on.
        chat.thinking = Some(false);
    }
    let engine = app.clone();
    let mut prompt = blocking(move || Ok(engine.engine.render(&chat)?)).await?;
    let reading = match wanted {
        Wanted::Anything => Reading::Marks(options),
        Wanted::Grammar(_) => {
            prompt.push_str(before_answer(&prompt));
            Reading::Plain
        }
        Wanted::Call(_) => {
            prompt.push_str(before_answer(&prompt));
            if app.engine.model().template().is_some_and(|template| template.contains(HERMES_CALL)) {
                prompt.push_str(HERMES_CALL);
                prompt.push('\n');
            }
            Reading::OneCall
        }
    };
    // The marks of a prompt's end are shorter.
    let end = prompt.char_indices().rev().nth(199).map_or(0, |(at, _)| at);
    let form = Form { prompt_end: prompt[end..].to_owned(), reading, several_calls };
    let mut request = Request { grammar, ..Request::new(Prompt::Rendered(prompt)) };
    if let Source::Reply(reply) = &form.reader(app).source {
        request.control_tokens = reply.marks_are_control_tokens();
    }
    Ok((request, form))
}

/// What has to follow a prompt before an answer can begin, for models that reason first.
fn before_answer(prompt: &str) -> &'static str {
    let end = prompt.trim_end();
    let closes = THINK.iter().find(|(open, _)| end.ends_with(open));
    match closes {
        Some((_, close)) => close,
        None if end.ends_with(HARMONY.0) => HARMONY.1,
        None => "",
    }
}

/// The schema of one call of one of the tools.
fn call_schema(tools: &[Value], name: Option<&str>) -> Result<Value, ApiError> {
    let mut calls = Vec::new();
    for tool in tools {
        let function = &tool["function"];
        if name.is_some_and(|name| function["name"] != name) {
            continue;
        }
        let mut arguments = function.get("parameters").filter(|parameters| !parameters.is_null()).cloned();
        if let Some(arguments) = &mut arguments {
            move_references(arguments, &format!("/anyOf/{}/properties/arguments", calls.len()));
        }
        let arguments = arguments.map_or_else(|| json!({"type": "object"}), closed_schema);
        calls.push(json!({
            "type": "object",
            "properties": {"name": {"const": function["name"]}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        }));
    }
    match (calls.is_empty(), name) {
        (false, _) => Ok(json!({"anyOf": calls})),
        (true, Some(name)) => Err(ApiError::param("tool_choice", format!("there is no tool {name:?} in tools"))),
        (true, None) => Err(ApiError::param("tool_choice", "a call is asked for, but tools is empty")),
    }
}

/// References of a schema that is put at another place.
fn move_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("$ref", Value::String(target)) if target.starts_with('#') => target.insert_str(1, place),
                    ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(schemas)) => {
                        schemas.values_mut().for_each(|schema| move_references(schema, place));
                    }
                    // These are values, whatever they look like.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    (_, value) => move_references(value, place),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| move_references(value, place)),
        _ => {}
    }
}

impl Form {
    /// A reader for one reply.
    pub(crate) fn reader(&self, app: &App) -> Reader {
        let template = app.engine.model().template();
        let source = match &self.reading {
            Reading::Marks(options) => Source::Reply(Reply::new(template, &self.prompt_end, options.clone())),
            Reading::Plain => Source::Reply(Reply::plain()),
            Reading::OneCall => Source::OneCall(String::new()),
        };
        Reader { source, calls: 0, several_calls: self.several_calls }
    }
}

impl Reader {
    #[cfg(test)]
    pub(crate) fn of(reply: Reply) -> Reader {
        Reader { source: Source::Reply(reply), calls: 0, several_calls: true }
    }

    /// Takes a piece of the text, and whether it is the last.
    pub(crate) fn read(&mut self, text: &str, last: bool) -> Vec<ReplyEvent> {
        let mut events = match &mut self.source {
            Source::Reply(reply) => {
                let mut events = reply.push(text);
                if last {
                    events.extend(reply.finish());
                }
                events
            }
            Source::OneCall(call) => {
                call.push_str(text);
                if last { vec![one_call(call)] } else { Vec::new() }
            }
        };
        let several_calls = self.several_calls;
        events.retain(|event| {
            let is_call = matches!(event, ReplyEvent::ToolCall(_));
            self.calls += usize::from(is_call);
            !is_call || several_calls || self.calls == 1
        });
        events
    }

    /// Whether the text so far ends within reasoning.
    pub(crate) fn is_reasoning(&self) -> bool {
        matches!(&self.source, Source::Reply(reply) if reply.is_reasoning())
    }

    /// Whether a call was read.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Takes a whole text.
    pub(crate) fn parts(mut self, text: &str) -> Parts {
        let mut parts = Parts::default();
        for event in self.read(text, true) {
            match event {
                ReplyEvent::Reasoning(text) => parts.reasoning += &text,
                ReplyEvent::Content(text) => parts.content += &text,
                ReplyEvent::ToolCall(call) => parts.calls.push(call),
            }
        }
        parts
    }
}

/// The call in a text, or the text if it was cut.
fn one_call(text: &str) -> ReplyEvent {
    let read = || {
        let call: Value = serde_json::from_str(text).ok()?;
        let arguments = call.get("arguments")?.to_string();
        Some(ToolCall { name: call["name"].as_str()?.to_owned(), arguments })
    };
    read().map_or_else(|| ReplyEvent::Content(text.to_owned()), ReplyEvent::ToolCall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_begin_after_reasoning() {
        assert_eq!(before_answer("<|im_start|>assistant\n<think>\n"), "\n</think>\n\n");
        assert_eq!(before_answer("<|im_start|>assistant\n<think>\n\n</think>\n\n"), "");
        assert_eq!(before_answer("<|start|>assistant"), "<|channel|>final<|message|>");
        assert_eq!(before_answer("assistant:"), "");
    }

    #[test]
    fn schemas_of_calls() {
        let tool = |name: &str| {
            let parameters = json!({
                "properties": {"a": {"$ref": "#/$defs/x"}, "const": {"const": {"$ref": "#/$defs/x"}}},
                "$defs": {"x": {"type": "string"}},
            });
            json!({"type": "function", "function": {"name": name, "parameters": parameters}})
        };
        let tools = [tool("one"), tool("two")];
        let schema = call_schema(&tools, None).expect("two tools");
        for (index, name) in ["one", "two"].into_iter().enumerate() {
            let call = &schema["anyOf"][index]["properties"];
            assert_eq!(call["name"]["const"], name);
            let target = call["arguments"]["properties"]["a"]["$ref"].as_str().expect("a reference");
            assert_eq!(schema.pointer(&target[1..]), Some(&json!({"type": "string"})));
            assert_eq!(call["arguments"]["properties"]["const"], json!({"const": {"$ref": "#/$defs/x"}}));
            assert_eq!(call["arguments"]["additionalProperties"], false);
        }
        assert_eq!(call_schema(&tools, Some("two")).expect("it is there")["anyOf"].as_array().map(Vec::len), Some(1));
        assert!(call_schema(&tools, Some("three")).is_err() && call_schema(&[], None).is_err());
    }

    #[test]
    fn a_call_that_was_cut_is_content() {
        let call = ToolCall { name: "f".into(), arguments: r#"{"b":1,"a":2}"#.into() };
        assert_eq!(one_call(r#"{"name": "f", "arguments": {"b": 1, "a": 2}}"#), ReplyEvent::ToolCall(call));
        assert_eq!(one_call(r#"{"name": "f", "arg"#), ReplyEvent::Content(r#"{"name": "f", "arg"#.into()));
    }
}

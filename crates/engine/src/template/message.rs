//! Messages of a conversation.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use thiserror::Error;

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// What is said.
    pub content: String,
    /// Other fields that templates know, such as `reasoning_content`, `name` or `tool_calls`.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

/// A message that is not of OpenAI's form.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path} is not {expected}")]
pub struct MessageError {
    /// The wrong or missing field, such as `messages[2].tool_calls[0].function.name`.
    pub path: String,
    /// What it has to be.
    pub expected: &'static str,
}

impl Message {
    /// A message with a role and a content only.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), extra: Map::new() }
    }

    /// The messages of a conversation in the form of OpenAI's chat interface, in the fields that templates know:
    ///
    /// - The content is text: parts are joined by line ends, and must be text. Without content it is empty.
    /// - The arguments of `tool_calls` are objects: OpenAI writes them as strings.
    /// - A tool's answer has the `name` of the tool that its `tool_call_id` stands for.
    /// - Reasoning is in `reasoning_content`, and in `thinking`, which gpt-oss reads; a client may write it to either
    ///   or to `reasoning`.
    /// - Fields that are `null` and empty lists of tool calls are left out. Other fields stay as they are.
    ///
    /// # Errors
    /// [`MessageError`] with the first field that has another form.
    pub fn from_openai(messages: &[Json]) -> Result<Vec<Message>, MessageError> {
        let mut read = Vec::with_capacity(messages.len());
        // The latest calls' ids and names.
        let mut called = Map::new();
        for (index, message) in messages.iter().enumerate() {
            let mut message = message_at(message, &format!("messages[{index}]"))?;
            for call in message.extra.get("tool_calls").and_then(Json::as_array).into_iter().flatten() {
                if let Some(id) = call["id"].as_str() {
                    called.insert(id.to_owned(), call["function"]["name"].clone());
                }
            }
            let id = message.extra.get("tool_call_id").and_then(Json::as_str);
            if message.role == "tool"
                && !message.extra.contains_key("name")
                && let Some(name) = id.and_then(|id| called.get(id))
            {
                message.extra.insert("name".to_owned(), name.clone());
            }
            read.push(message);
        }
        Ok(read)
    }
}

fn wrong<T>(path: String, expected: &'static str) -> Result<T, MessageError> {
    Err(MessageError { path, expected })
}

fn message_at(message: &Json, path: &str) -> Result<Message, MessageError> {
    let Some(fields) = message.as_object() else { return wrong(path.to_owned(), "an object") };
    let mut extra: Map<String, Json> =
        fields.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect();
    let Some(Json::String(role)) = extra.shift_remove("role") else { return wrong(format!("{path}.role"), "text") };
    let content = content(extra.shift_remove("content").unwrap_or_default(), &format!("{path}.content"))?;
    if let Some(calls) = extra.shift_remove("tool_calls") {
        let calls = tool_calls(calls, &format!("{path}.tool_calls"))?;
        if !calls.is_empty() {
            extra.insert("tool_calls".to_owned(), calls.into());
        }
    }
    unify_reasoning(&content, &mut extra);
    Ok(Message { role, content, extra })
}

/// A message's text.
fn content(content: Json, path: &str) -> Result<String, MessageError> {
    let parts = match content {
        Json::Null => return Ok(String::new()),
        Json::String(text) => return Ok(text),
        Json::Array(parts) => parts,
        _ => return wrong(path.to_owned(), "text or a list of parts"),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        match (part["type"].as_str(), part["text"].as_str()) {
            (Some("text"), Some(text)) => texts.push(text),
            (Some("text"), None) => return wrong(format!("{path}[{index}].text"), "text"),
            _ => return wrong(format!("{path}[{index}].type"), "text: other parts are not supported"),
        }
    }
    Ok(texts.join("\n"))
}

/// Tool calls whose arguments are objects.
fn tool_calls(calls: Json, path: &str) -> Result<Vec<Json>, MessageError> {
    let Json::Array(mut calls) = calls else { return wrong(path.to_owned(), "a list") };
    for (index, call) in calls.iter_mut().enumerate() {
        let path = format!("{path}[{index}].function");
        let Some(function) = call.get_mut("function").and_then(Json::as_object_mut) else {
            return wrong(path, "an object");
        };
        if !function.get("name").is_some_and(Json::is_string) {
            return wrong(format!("{path}.name"), "text");
        }
        let arguments = match function.get("arguments") {
            None | Some(Json::Null) => Map::new(),
            Some(Json::Object(_)) => continue,
            Some(Json::String(text)) if text.trim().is_empty() => Map::new(),
            Some(Json::String(text)) => match serde_json::from_str(text) {
                Ok(arguments) => arguments,
                Err(_) => return wrong(format!("{path}.arguments"), "the text of a JSON object"),
            },
            Some(_) => return wrong(format!("{path}.arguments"), "the text of a JSON object"),
        };
        function.insert("arguments".to_owned(), arguments.into());
    }
    Ok(calls)
}

/// Gives reasoning the names under which templates look for it.
fn unify_reasoning(content: &str, extra: &mut Map<String, Json>) {
    const NAMES: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];
    let Some(reasoning) = NAMES.iter().find_map(|name| extra.get(*name).filter(|text| text.is_string())).cloned()
    else {
        return;
    };
    for name in NAMES {
        extra.shift_remove(name);
    }
    // gpt-oss's template refuses calls with both.
    if content.is_empty() || !extra.contains_key("tool_calls") {
        extra.insert("thinking".to_owned(), reasoning.clone());
    }
    extra.insert("reasoning_content".to_owned(), reasoning);
}

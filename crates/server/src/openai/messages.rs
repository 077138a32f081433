//! Messages of a conversation, as OpenAI writes them.

use gristmill_engine::Chat;
use gristmill_engine::template::{Call, Message, Role, Tool};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::error::ApiError;

/// One message, as it is described to clients; [`messages`] reads it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant`, or `tool`.
    role: String,
    content: Option<Content>,
    /// Who speaks, or the name of the tool.
    name: Option<String>,
    /// What an assistant thought.
    reasoning_content: Option<String>,
    /// Calls of an assistant.
    tool_calls: Option<Vec<ToolCall>>,
    /// The call that a tool answers.
    tool_call_id: Option<String>,
}

/// A text, or parts of one, which are joined by line ends.
#[derive(Debug, Serialize, ToSchema)]
#[expect(dead_code, reason = "it describes JSON to clients, and is never made")]
#[serde(untagged)]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContentPart {
    /// `text`.
    r#type: String,
    text: String,
}

/// A call of a tool.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ToolCall {
    /// Which of a message's calls it is; in events alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<usize>,
    pub(crate) id: String,
    /// `function`.
    pub(crate) r#type: &'static str,
    pub(crate) function: FunctionCall,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct FunctionCall {
    pub(crate) name: String,
    /// The text of a JSON object.
    pub(crate) arguments: String,
}

/// The messages for a template; errors name the wrong field.
pub(crate) fn messages(from: Vec<Value>) -> Result<Vec<Message>, ApiError> {
    if from.is_empty() {
        return Err(ApiError::param("messages", "messages is empty; give at least one"));
    }
    from_openai(&from)
}

/// The messages of a conversation, as OpenAI writes them.
pub(crate) fn from_openai(messages: &[Value]) -> Result<Vec<Message>, ApiError> {
    let message = |(index, message)| message_at(message, &format!("messages[{index}]"));
    messages.iter().enumerate().map(message).collect()
}

fn wrong<T>(path: String, expected: &str) -> Result<T, ApiError> {
    let sentence = format!("{path} is not {expected}");
    Err(ApiError::param(path, sentence))
}

fn message_at(message: &Value, path: &str) -> Result<Message, ApiError> {
    if !message.is_object() {
        return wrong(path.to_owned(), "an object");
    }
    let role = match message["role"].as_str() {
        // The newer name of the same role, which templates do not know.
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        Some(role) => {
            let sentence = format!("{role:?} is not a role; use system, developer, user, assistant or tool");
            return Err(ApiError::param(format!("{path}.role"), sentence));
        }
        None => return wrong(format!("{path}.role"), "text"),
    };
    // A call needs no words.
    if role != Role::Assistant && message["content"].is_null() {
        return Err(ApiError::param(format!("{path}.content"), "a message needs a content"));
    }
    let text = |field: &str| message[field].as_str().map(str::to_owned);
    Ok(Message {
        role,
        name: text("name"),
        text: content(&message["content"], &format!("{path}.content"))?,
        reasoning: ["reasoning_content", "reasoning", "thinking"].into_iter().find_map(text),
        calls: calls(&message["tool_calls"], &format!("{path}.tool_calls"))?,
        call_id: text("tool_call_id"),
    })
}

/// A message's text: parts are joined by line ends.
fn content(content: &Value, path: &str) -> Result<String, ApiError> {
    let parts = match content {
        Value::Null => return Ok(String::new()),
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => return wrong(path.to_owned(), "text or a list of parts"),
    };
    let part = |(index, part): (usize, &Value)| match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text.to_owned()),
        (Some("text"), None) => wrong(format!("{path}[{index}].text"), "text"),
        _ => wrong(format!("{path}[{index}].type"), "text: other parts are not supported"),
    };
    Ok(parts.iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn calls(calls: &Value, path: &str) -> Result<Vec<Call>, ApiError> {
    let calls = match calls {
        Value::Null => return Ok(Vec::new()),
        Value::Array(calls) => calls,
        _ => return wrong(path.to_owned(), "a list"),
    };
    let call = |(index, call): (usize, &Value)| {
        let (path, function) = (format!("{path}[{index}].function"), &call["function"]);
        if !function.is_object() {
            return wrong(path, "an object");
        }
        let Some(name) = function["name"].as_str() else { return wrong(format!("{path}.name"), "text") };
        let arguments = match &function["arguments"] {
            Value::Null => Ok(Map::new()),
            Value::Object(arguments) => Ok(arguments.clone()),
            Value::String(text) if text.trim().is_empty() => Ok(Map::new()),
            Value::String(text) => serde_json::from_str(text).map_err(|_| ()),
            _ => Err(()),
        };
        let Ok(arguments) = arguments else {
            return wrong(format!("{path}.arguments"), "the text of a JSON object");
        };
        Ok(Call { id: call["id"].as_str().unwrap_or_default().to_owned(), name: name.to_owned(), arguments })
    };
    calls.iter().enumerate().map(call).collect()
}

/// The conversation for a template. The effort `none` turns reasoning off.
pub(crate) fn conversation(
    messages: Vec<Message>,
    tools: Vec<Tool>,
    variables: Option<Map<String, Value>>,
    effort: Option<String>,
) -> Chat {
    let mut variables = variables.unwrap_or_default();
    let thinking = effort.as_deref().filter(|&effort| effort == "none").map(|_| false);
    if let Some(effort) = effort {
        variables.entry("reasoning_effort").or_insert(Value::String(effort));
    }
    Chat { messages, tools, thinking, variables }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_of_openai() {
        let call =
            json!({"id": "c1", "type": "function", "function": {"name": "weigh", "arguments": "{\"sacks\": 2.0}"}});
        let blank = json!({"id": "c2", "type": "function", "function": {"name": "now", "arguments": ""}});
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let found = from_openai(&[
            json!({"role": "user", "content": parts, "name": "Ada"}),
            json!({"role": "assistant", "content": null, "tool_calls": [call, blank], "reasoning": "hm", "refusal": null}),
            json!({"role": "tool", "tool_call_id": "c2", "content": "noon"}),
            json!({"role": "developer", "content": "", "tool_calls": null}),
            json!({"role": "assistant", "content": "x", "tool_calls": [], "thinking": "so"}),
        ]);
        let call = |id: &str, name: &str, arguments: Value| Call {
            id: id.into(),
            name: name.into(),
            arguments: serde_json::from_value(arguments).expect("an object"),
        };
        let calls = vec![call("c1", "weigh", json!({"sacks": 2.0})), call("c2", "now", json!({}))];
        let expected = [
            Message { name: Some("Ada".into()), ..Message::new(Role::User, "a\nb") },
            Message { reasoning: Some("hm".into()), calls, ..Message::new(Role::Assistant, "") },
            Message { call_id: Some("c2".into()), ..Message::new(Role::Tool, "noon") },
            Message::new(Role::System, ""),
            Message { reasoning: Some("so".into()), ..Message::new(Role::Assistant, "x") },
        ];
        assert_eq!(found.expect("good messages"), expected);
    }

    #[test]
    fn wrong_messages_are_named() {
        let function = |function: Value| json!({"role": "assistant", "tool_calls": [{"function": function}]});
        for (message, expected) in [
            (json!("text"), "messages[1] is not an object"),
            (json!({"content": "a"}), "messages[1].role is not text"),
            (json!({"role": "user", "content": 1}), "messages[1].content is not text or a list of parts"),
            (json!({"role": "user", "content": [{"type": "text"}]}), "messages[1].content[0].text is not text"),
            (
                json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}),
                "messages[1].content[1].type is not text: other parts are not supported",
            ),
            (json!({"role": "assistant", "tool_calls": {}}), "messages[1].tool_calls is not a list"),
            (function(json!(null)), "messages[1].tool_calls[0].function is not an object"),
            (function(json!({"arguments": "{}"})), "messages[1].tool_calls[0].function.name is not text"),
            (
                function(json!({"name": "f", "arguments": "[1]"})),
                "messages[1].tool_calls[0].function.arguments is not the text of a JSON object",
            ),
            (
                function(json!({"name": "f", "arguments": 1})),
                "messages[1].tool_calls[0].function.arguments is not the text of a JSON object",
            ),
        ] {
            let error = from_openai(&[json!({"role": "user", "content": "a"}), message]).expect_err("refused");
            assert_eq!(error.message, expected);
        }
    }
}

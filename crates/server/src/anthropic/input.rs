//! Conversations and tools as Anthropic writes them, in the form of OpenAI's.

use gristmill_engine::Chat;
use gristmill_engine::template::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::openai::messages::from_openai;

/// A message.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(super) struct InputMessage {
    /// `user` or `assistant`.
    role: String,
    #[schema(value_type = Blocks)]
    content: Value,
}

/// A text, or blocks.
#[derive(Debug, Serialize, ToSchema)]
#[expect(dead_code, reason = "it describes JSON to clients, and is never made")]
#[serde(untagged)]
pub(super) enum Blocks {
    Text(String),
    Blocks(Vec<Block>),
}

/// `text`, `thinking`, `tool_use` or `tool_result`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Block {
    r#type: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Map<String, Value>>,
    tool_use_id: Option<String>,
    #[schema(value_type = Option<Value>)]
    content: Option<Value>,
}

/// A tool.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InputTool {
    name: String,
    description: Option<String>,
    /// A JSON schema.
    input_schema: Value,
}

/// Claude Code's first block of the system prompt, which changes with each request and would spoil the prefix cache. It says
/// who pays, and nothing to the model.
const BILLING: &str = "x-anthropic-billing-header:";

/// The conversation.
pub(super) fn chat(messages: Vec<InputMessage>, system: Option<Value>) -> Result<Chat, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::param("messages", "messages is empty; give at least one"));
    }
    let mut written = Vec::new();
    if let Some(system) = system {
        let texts = texts(&system, "system")?;
        let texts: Vec<&str> = texts.into_iter().filter(|text| !text.starts_with(BILLING)).collect();
        if !texts.is_empty() {
            written.push(json!({"role": "system", "content": texts.join("\n")}));
        }
    }
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        match message.role.as_str() {
            "assistant" => written.push(assistant(&message.content, &format!("{at}.content"))?),
            "user" => user(&message.content, &format!("{at}.content"), &mut written)?,
            // As Claude Code does in the middle of a conversation.
            "system" => {
                let text = texts(&message.content, &format!("{at}.content"))?.join("\n");
                written.push(json!({"role": "system", "content": text}));
            }
            other => {
                let message = format!("{other:?} is not a role; use user or assistant");
                return Err(ApiError::param(format!("{at}.role"), message));
            }
        }
    }
    Ok(Chat::new(from_openai(&written)?))
}

/// The blocks of a content, with their types and places.
fn blocks<'a>(content: &'a Value, at: &str) -> Result<Vec<(&'a str, &'a Value, String)>, ApiError> {
    let Some(blocks) = content.as_array() else {
        return Err(ApiError::param(at, "a content is a text or a list of blocks"));
    };
    let block = |(index, block): (usize, &'a Value)| {
        let at = format!("{at}[{index}]");
        match block["type"].as_str() {
            Some(kind) => Ok((kind, block, at)),
            None => Err(ApiError::param(format!("{at}.type"), "a block needs a type, such as text")),
        }
    };
    blocks.iter().enumerate().map(block).collect()
}

fn text<'a>(block: &'a Value, field: &str, at: &str) -> Result<&'a str, ApiError> {
    let missing = || ApiError::param(format!("{at}.{field}"), format!("the block needs the text {field}"));
    block[field].as_str().ok_or_else(missing)
}

fn unsupported<T>(kind: &str, at: &str) -> Result<T, ApiError> {
    let message = format!("blocks of type {kind:?} are not supported here");
    Err(ApiError::param(format!("{at}.type"), message).with_code("unsupported"))
}

/// The texts of a content that has nothing else.
fn texts<'a>(content: &'a Value, at: &str) -> Result<Vec<&'a str>, ApiError> {
    if let Some(text) = content.as_str() {
        return Ok(vec![text]);
    }
    let texts = blocks(content, at)?.into_iter().map(|(kind, block, at)| match kind {
        "text" => text(block, "text", &at),
        _ => unsupported(kind, &at),
    });
    texts.collect()
}

fn assistant(content: &Value, at: &str) -> Result<Value, ApiError> {
    if let Some(text) = content.as_str() {
        return Ok(json!({"role": "assistant", "content": text}));
    }
    let (mut said, mut thought, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, block, at) in blocks(content, at)? {
        match kind {
            "text" => said.push(text(block, "text", &at)?),
            "thinking" => thought.push(text(block, "thinking", &at)?),
            // Another server's, which only it can read.
            "redacted_thinking" => {}
            "tool_use" => {
                let name = text(block, "name", &at)?;
                let function = json!({"name": name, "arguments": block["input"]});
                calls.push(json!({"id": text(block, "id", &at)?, "type": "function", "function": function}));
            }
            _ => return unsupported(kind, &at),
        }
    }
    let mut message = json!({"role": "assistant", "content": said.join("\n"), "tool_calls": calls});
    if !thought.is_empty() {
        message["reasoning_content"] = thought.join("\n").into();
    }
    Ok(message)
}

/// Results of tools are messages of their own, before the words of the user.
fn user(content: &Value, at: &str, written: &mut Vec<Value>) -> Result<(), ApiError> {
    if let Some(text) = content.as_str() {
        written.push(json!({"role": "user", "content": text}));
        return Ok(());
    }
    let mut said = Vec::new();
    for (kind, block, at) in blocks(content, at)? {
        match kind {
            "text" => said.push(text(block, "text", &at)?),
            "tool_result" => {
                let result = match &block["content"] {
                    Value::Null => String::new(),
                    content => texts(content, &format!("{at}.content"))?.join("\n"),
                };
                let id = text(block, "tool_use_id", &at)?;
                written.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
            }
            _ => return unsupported(kind, &at),
        }
    }
    if !said.is_empty() {
        written.push(json!({"role": "user", "content": said.join("\n")}));
    }
    Ok(())
}

/// Tools, and the names of the fields with others than functions.
pub(super) fn tools(tools: Vec<Value>) -> Result<(Vec<Tool>, Vec<String>), ApiError> {
    let (mut functions, mut others) = (Vec::new(), Vec::new());
    for (index, tool) in tools.into_iter().enumerate() {
        let at = format!("tools[{index}]");
        // The provider's own tools have types with dates.
        if tool["type"].as_str().is_some_and(|kind| kind != "custom") {
            others.push(at);
            continue;
        }
        let Some(name) = tool["name"].as_str().filter(|name| !name.is_empty()) else {
            return Err(ApiError::param(format!("{at}.name"), "a tool needs a name"));
        };
        functions.push(Tool {
            name: name.to_owned(),
            description: tool["description"].as_str().map(str::to_owned),
            parameters: tool.get("input_schema").filter(|schema| !schema.is_null()).cloned(),
        });
    }
    Ok((functions, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(content: Value) -> Vec<InputMessage> {
        serde_json::from_value(content).expect("messages")
    }

    #[test]
    fn a_conversation_with_tools() {
        let system = json!([{"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=5"},
                            {"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]);
        let chat = chat(
            messages(json!([
                {"role": "user", "content": "weather?"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "I look"},
                    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"place": "Rome"}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sun"}]},
                    {"type": "text", "text": "and now?"}]},
            ])),
            Some(system),
        )
        .expect("a conversation");
        let roles: Vec<&str> = chat.messages.iter().map(|message| message.role.name()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        let contents: Vec<&str> = chat.messages.iter().map(|message| message.text.as_str()).collect();
        assert_eq!(contents, ["be brief", "weather?", "I look", "sun", "and now?"]);
        let call = &chat.messages[2].calls[0];
        assert_eq!((&*call.name, &call.arguments["place"]), ("weather", &json!("Rome")));
        assert_eq!(chat.messages[3].call_id.as_deref(), Some("t1"));
    }

    #[test]
    fn what_is_refused() {
        let refused = |content: Value| {
            let messages = messages(json!([{"role": "user", "content": content}]));
            chat(messages, None).expect_err("refused").anthropic_message()
        };
        assert!(refused(json!([{"type": "image", "source": {}}])).starts_with("messages[0].content[0].type"));
        assert!(refused(json!([{"type": "tool_result", "content": "x"}])).contains("tool_use_id"));
        assert!(refused(json!([{"text": "x"}])).contains("needs a type"));
        assert!(refused(json!(5)).contains("messages[0].content"));
        assert!(tools(vec![json!({"input_schema": {}})]).is_err());
        let (functions, others) = tools(vec![
            json!({"type": "web_search_20250305", "name": "web_search"}),
            json!({"name": "f", "description": "d", "input_schema": {"type": "object"}}),
        ])
        .expect("tools");
        assert_eq!((functions.len(), others), (1, vec!["tools[0]".to_owned()]));
        let (name, description) = ("f".into(), Some("d".into()));
        assert_eq!(functions[0], Tool { name, description, parameters: Some(json!({"type": "object"})) });
    }
}

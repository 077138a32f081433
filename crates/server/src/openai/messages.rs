//! Messages of a conversation, as OpenAI writes them.

use gristmill_engine::template::Message;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;

/// One message.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant`, or `tool`.
    role: String,
    content: Option<Content>,
    /// Who speaks, or the name of the tool.
    name: Option<String>,
    /// What an assistant thought.
    reasoning_content: Option<String>,
    /// Calls of an assistant.
    tool_calls: Option<Vec<Value>>,
    /// The call that a tool answers.
    tool_call_id: Option<String>,
}

/// A text, or parts of one.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(untagged, expecting = "a string or a list of parts")]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct ContentPart {
    /// `text`.
    r#type: String,
    text: Option<String>,
}

const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// The messages for a template; errors name the field `messages[i]`.
pub(crate) fn messages(from: Vec<ChatMessage>) -> Result<Vec<Message>, ApiError> {
    if from.is_empty() {
        return Err(ApiError::param("messages", "messages is empty; give at least one"));
    }
    from.into_iter().enumerate().map(|(index, message)| message.message(&format!("messages[{index}]"))).collect()
}

impl ChatMessage {
    fn message(self, at: &str) -> Result<Message, ApiError> {
        let ChatMessage { role, content, name, reasoning_content, tool_calls, tool_call_id } = self;
        if !ROLES.contains(&role.as_str()) {
            let message = format!("{role:?} is not a role; use system, developer, user, assistant or tool");
            return Err(ApiError::param(format!("{at}.role"), message));
        }
        let content = match content {
            Some(content) => content.text(&format!("{at}.content"))?,
            // A call needs no words.
            None if role == "assistant" => String::new(),
            None => return Err(ApiError::param(format!("{at}.content"), "a message needs a content")),
        };
        // The newer name of the same role, which templates do not know.
        let role = if role == "developer" { "system".to_owned() } else { role };
        let mut message = Message::new(role, content);
        let mut add = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                message.extra.insert(key.to_owned(), value);
            }
        };
        add("name", name.map(Value::from));
        add("reasoning_content", reasoning_content.map(Value::from));
        add("tool_calls", tool_calls.map(Value::from));
        add("tool_call_id", tool_call_id.map(Value::from));
        Ok(message)
    }
}

impl Content {
    /// The text; parts are joined by line ends.
    pub(crate) fn text(self, at: &str) -> Result<String, ApiError> {
        let parts = match self {
            Content::Text(text) => return Ok(text),
            Content::Parts(parts) => parts,
        };
        let texts = parts.into_iter().enumerate().map(|(index, part)| match (part.r#type.as_str(), part.text) {
            ("text" | "input_text" | "output_text", Some(text)) => Ok(text),
            ("text" | "input_text" | "output_text", None) => {
                Err(ApiError::param(format!("{at}[{index}].text"), "a part of type text needs a text"))
            }
            (other, _) => {
                let message = format!("parts of type {other:?} are not supported; this model reads text");
                Err(ApiError::param(format!("{at}[{index}].type"), message).with_code("unsupported"))
            }
        });
        Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
    }
}

//! Messages of a conversation, as OpenAI writes them.

use gristmill_engine::Chat;
use gristmill_engine::template::Message;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::error::ApiError;

/// One message, as it is described to clients; [`Message::from_openai`] reads it.
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

const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// The messages for a template; errors name the wrong field.
pub(crate) fn messages(mut from: Vec<Value>) -> Result<Vec<Message>, ApiError> {
    if from.is_empty() {
        return Err(ApiError::param("messages", "messages is empty; give at least one"));
    }
    for (index, message) in from.iter_mut().enumerate() {
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        if role == "developer" {
            // The newer name of the same role, which templates do not know.
            message["role"] = "system".into();
        } else if !role.is_empty() && !ROLES.contains(&role.as_str()) {
            let sentence = format!("{role:?} is not a role; use system, developer, user, assistant or tool");
            return Err(ApiError::param(format!("messages[{index}].role"), sentence));
        }
        // A call needs no words.
        if message.is_object() && role != "assistant" && message["content"].is_null() {
            return Err(ApiError::param(format!("messages[{index}].content"), "a message needs a content"));
        }
    }
    Message::from_openai(&from).map_err(|error| ApiError::param(error.path.clone(), error.to_string()))
}

/// The conversation for a template. The effort `none` turns reasoning off.
pub(crate) fn conversation(
    messages: Vec<Message>,
    variables: Option<Map<String, Value>>,
    effort: Option<String>,
) -> Chat {
    let mut variables = variables.unwrap_or_default();
    let thinking = effort.as_deref().filter(|&effort| effort == "none").map(|_| false);
    if let Some(effort) = effort {
        variables.entry("reasoning_effort").or_insert(Value::String(effort));
    }
    Chat { messages, thinking, variables }
}

//! Messages of a conversation, as OpenAI writes them.

use gristmill_engine::template::{Arguments, Call, Message, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::content::{ContentPart, THINKING, result, said, text, thinking};
use crate::content::Content;
use crate::error::ApiError;
use crate::images::{Images, Said};
use crate::json::mend_surrogates;

/// One message.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant`, or `tool`; `function` is the older name of `tool`.
    role: String,
    /// The text; an assistant's message and a tool's result may lack it.
    content: Option<Content<ContentPart>>,
    /// The text of an assistant's refusal.
    refusal: Option<String>,
    /// The name of the author, or of the tool.
    #[serde(alias = "tool_name")]
    name: Option<String>,
    /// An assistant's reasoning.
    reasoning_content: Option<String>,
    /// Another name of `reasoning_content`.
    reasoning: Option<String>,
    /// Another name of `reasoning_content`.
    thinking: Option<String>,
    /// An assistant's reasoning in parts, as OpenRouter returns it; read without the fields above.
    reasoning_details: Option<Vec<ReasoningDetail>>,
    /// Calls of an assistant.
    tool_calls: Option<Vec<MessageCall>>,
    /// The older form of a call of an assistant.
    function_call: Option<CalledFunction>,
    /// The id of the call that a tool answers.
    tool_call_id: Option<String>,
    /// Whether the reply continues this message, an assistant's at the end: `continue_final_message` of this request.
    #[serde(alias = "partial")]
    prefix: Option<bool>,
}

/// A part of reasoning.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "some fields are only for the server that wrote them")]
pub(crate) struct ReasoningDetail {
    /// `reasoning.text`, `reasoning.summary`, or `reasoning.encrypted`, of which nothing is read.
    r#type: Option<String>,
    text: Option<String>,
    /// A summary, which stands for a text that is missing.
    summary: Option<String>,
    /// Ignored, like the following fields.
    data: Option<Value>,
    id: Option<Value>,
    format: Option<Value>,
    index: Option<Value>,
    signature: Option<Value>,
}

/// A call in a message.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct MessageCall {
    id: Option<String>,
    /// `function`, or `custom`.
    r#type: Option<String>,
    function: Option<CalledFunction>,
    custom: Option<CalledCustom>,
}

/// The call of a tool whose input is a text. Templates get it as the argument `input`.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CalledCustom {
    name: String,
    input: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CalledFunction {
    name: String,
    /// The text of a JSON object, or the object. A template prints other text as it is.
    arguments: Option<Value>,
}

/// A call of a tool in a reply.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ToolCall {
    /// The index among the calls of the message; in events alone.
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

/// The messages for a template.
pub(crate) fn messages(messages: Vec<ChatMessage>, images: &mut Images) -> Result<Vec<Message>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::param("messages", "messages is empty; send at least one"));
    }
    let read = |(index, message): (usize, ChatMessage)| message.read(&format!("messages[{index}]"), images);
    messages.into_iter().enumerate().map(read).collect()
}

impl ChatMessage {
    /// Whether the reply continues this message if it is the last one.
    pub(super) fn is_prefix(&self) -> bool {
        self.prefix == Some(true) && self.role == "assistant"
    }

    /// The message at the path `at`.
    fn read(self, at: &str, images: &mut Images) -> Result<Message, ApiError> {
        let role = match self.role.as_str() {
            // Templates do not know the newer name.
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" | "function" => Role::Tool,
            other => {
                let message = format!("{other:?} is not a role; use system, developer, user, assistant or tool");
                return Err(ApiError::param(format!("{at}.role"), message));
            }
        };
        let thought = self.content.as_ref().filter(|_| role == Role::Assistant).and_then(thinking);
        let path = format!("{at}.content");
        let said = match self.content {
            Some(content) if role == Role::Tool => result(content, &["text"], &path, images)?,
            Some(content) if role == Role::User => said(content, &["text"], &path, images)?,
            Some(content) if role == Role::Assistant => text(content, &["text", THINKING], &path)?.into(),
            Some(content) => text(content, &["text"], &path)?.into(),
            None if role == Role::Assistant && self.refusal.is_some() => Said::default(),
            // Clients in Go leave out empty texts.
            None if matches!(role, Role::Assistant | Role::Tool) => Said::default(),
            None => return Err(ApiError::param(format!("{at}.content"), "a message needs a content")),
        };
        let refusal = self.refusal.filter(|refusal| role == Role::Assistant && !refusal.is_empty());
        let said = match refusal {
            Some(refusal) if said.text.is_empty() => refusal.into(),
            Some(refusal) => format!("{}\n{refusal}", said.text).into(),
            None => said,
        };
        let call = |(index, call): (usize, MessageCall)| call.read(&format!("{at}.tool_calls[{index}]"));
        let mut calls: Vec<Call> =
            self.tool_calls.into_iter().flatten().enumerate().map(call).collect::<Result<_, ApiError>>()?;
        if let Some(CalledFunction { name, arguments }) = self.function_call {
            let arguments = arguments_of(arguments, &format!("{at}.function_call.arguments"))?;
            calls.push(Call { id: String::new(), name, arguments });
        }
        let details = self.reasoning_details.into_iter().flatten();
        let details: Vec<String> = details.filter_map(|detail| detail.text.or(detail.summary)).collect();
        let details = (!details.is_empty()).then(|| details.join("\n"));
        let reasoning = self.reasoning_content.or(self.reasoning).or(self.thinking).or(thought).or(details);
        Ok(Message { name: self.name, reasoning, calls, call_id: self.tool_call_id, ..said.message(role) })
    }
}

impl MessageCall {
    /// The call at the path `at`.
    fn read(self, at: &str) -> Result<Call, ApiError> {
        let id = self.id.unwrap_or_default();
        match (self.function, self.custom) {
            (Some(CalledFunction { name, arguments }), None) => {
                let arguments = arguments_of(arguments, &format!("{at}.function.arguments"))?;
                Ok(Call { id, name, arguments })
            }
            (None, Some(CalledCustom { name, input })) => {
                let input = Map::from_iter(input.map(|input| ("input".to_owned(), input.into())));
                Ok(Call { id, name, arguments: input.into() })
            }
            _ => {
                let field = if self.r#type.as_deref() == Some("custom") { "custom" } else { "function" };
                Err(ApiError::param(format!("{at}.{field}"), format!("the call needs the field {field}, and no other")))
            }
        }
    }
}

/// The arguments of a call at the path `at`: an object, or the text of one. Clients write `null` for no arguments. Models
/// write text that is no object too, which clients send back with the error of the call.
pub(super) fn arguments_of(arguments: Option<Value>, at: &str) -> Result<Arguments, ApiError> {
    match arguments {
        None => Ok(Arguments::default()),
        Some(Value::Object(arguments)) => Ok(arguments.into()),
        Some(Value::String(text)) if matches!(text.trim(), "" | "null") => Ok(Arguments::default()),
        Some(Value::String(text)) => {
            let mut json = text.clone().into_bytes();
            mend_surrogates(&mut json);
            Ok(serde_json::from_slice(&json).map_or(Arguments::Text(text), Arguments::Named))
        }
        Some(_) => Err(ApiError::param(at, "the arguments of a call are a text, or a JSON object")),
    }
}

//! Conversations: messages, the tools that a model may call, and its calls.
//!
//! As JSON each has the names of its fields. What is empty is left out, and an unknown field is an error.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// A conversation to be answered.
///
/// ```
/// use gristmill_text::template::{Chat, Message, Role};
/// let chat = Chat::new(vec![Message::new(Role::User, "Why is the sky blue?")]);
/// let json = serde_json::to_string(&chat)?;
/// assert_eq!(json, r#"{"messages":[{"role":"user","text":"Why is the sky blue?"}]}"#);
/// assert_eq!(serde_json::from_str::<Chat>(&json)?, chat);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chat {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Whether a model that can reason does; left to the template if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
    /// The last message, an assistant's, is the beginning of the reply: it is continued instead of answered.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continues: bool,
    /// A chat template in place of the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Other variables of the template. They override those that the other fields set.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Json>,
}

impl Chat {
    /// A conversation without tools.
    pub fn new(messages: Vec<Message>) -> Chat {
        Chat { messages, ..Chat::default() }
    }

    /// The tools that the prompt lists: all but the deferred ones.
    pub fn listed_tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().filter(|tool| !tool.is_deferred)
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions for the model.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool that the model has called.
    Tool,
}

impl Role {
    /// The name in templates: `system`, `user`, `assistant` or `tool`.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The name of the author. A tool's result without one has the name of the tool that its call names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The text.
    pub text: String,
    /// The places of images: offsets of bytes in the text, in ascending order, at the starts of characters or at its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<usize>,
    /// The reasoning that preceded an assistant's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// An assistant's calls of tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// The id of the call whose result a tool's message is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
}

impl Message {
    /// A message that has a text only.
    pub fn new(role: Role, text: impl Into<String>) -> Message {
        Message {
            role,
            name: None,
            text: text.into(),
            images: Vec::new(),
            reasoning: None,
            calls: Vec::new(),
            call_id: None,
        }
    }
}

/// A call of a tool in an earlier message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The id by which a tool's result refers to the call; may be empty if no result does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments.
    #[serde(default, skip_serializing_if = "Arguments::is_empty")]
    pub arguments: Arguments,
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Arguments {
    /// The arguments by name.
    Named(Map<String, Json>),
    /// What a model wrote in place of an object, such as the start of one. Templates print this text.
    Text(String),
}

impl Arguments {
    /// The arguments in a text of JSON; the text itself if it is not an object.
    pub fn from_text(text: String) -> Arguments {
        serde_json::from_str(&text).map_or(Arguments::Text(text), Arguments::Named)
    }

    /// Whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        match self {
            Arguments::Named(arguments) => arguments.is_empty(),
            Arguments::Text(text) => text.is_empty(),
        }
    }

    /// The argument with this name.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Arguments::Named(arguments) => arguments.get(name),
            Arguments::Text(_) => None,
        }
    }
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments::Named(Map::new())
    }
}

impl From<Map<String, Json>> for Arguments {
    fn from(arguments: Map<String, Json>) -> Arguments {
        Arguments::Named(arguments)
    }
}

/// A tool that a model may call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// The name.
    pub name: String,
    /// The purpose, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON schema of the arguments, which are an object; any object if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Json>,
    /// The prompt does not list this tool. The model can call it all the same: a message has its definition.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_deferred: bool,
}

impl Tool {
    /// The name, the description and the schema, as prompts have them.
    pub fn definition(&self) -> Json {
        let mut fields = Map::new();
        fields.insert("name".to_owned(), self.name.as_str().into());
        let mut set = |name: &str, value: Option<Json>| value.map(|value| fields.insert(name.to_owned(), value));
        set("description", self.description.clone().map(Json::from));
        set("parameters", self.parameters.clone());
        fields.into()
    }
}

//! Conversations: messages, the tools that a model may call, and its calls.

use serde_json::{Map, Value as Json};

/// A conversation to be answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chat {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// Whether a model that can reason does; left to the template if `None`.
    pub thinking: Option<bool>,
    /// The last message, an assistant's, is the start of the reply: it is continued instead of answered.
    pub continues: bool,
    /// A chat template in place of the model's.
    pub template: Option<String>,
    /// Other variables of the template. They override those that the other fields set.
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

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The name of the author. A tool's result without one has the name of the tool that its call names.
    pub name: Option<String>,
    /// The text.
    pub text: String,
    /// The reasoning that preceded an assistant's text.
    pub reasoning: Option<String>,
    /// An assistant's calls of tools.
    pub calls: Vec<Call>,
    /// The id of the call whose result a tool's message is.
    pub call_id: Option<String>,
}

impl Message {
    /// A message that has a text only.
    pub fn new(role: Role, text: impl Into<String>) -> Message {
        Message { role, name: None, text: text.into(), reasoning: None, calls: Vec::new(), call_id: None }
    }
}

/// A call of a tool in an earlier message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Call {
    /// The id by which a tool's result refers to the call; may be empty if no result does.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments by name.
    pub arguments: Map<String, Json>,
}

/// A tool that a model may call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tool {
    /// The name.
    pub name: String,
    /// The purpose, for the model.
    pub description: Option<String>,
    /// The JSON schema of the arguments, which are an object; any object if `None`.
    pub parameters: Option<Json>,
    /// The prompt does not list this tool. The model can call it all the same: a message has its definition.
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

//! Tools, and the choice among them.

use gristmill_engine::engine::ToolChoice;
use gristmill_engine::template::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::error::{ApiError, Paths};
use crate::tools::Tools;

/// A tool of a chat.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatTool {
    /// `function`; others are left out, and named in the header `x-gristmill-ignored`.
    r#type: String,
    function: Option<Function>,
}

/// A function that the model may call.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
pub(crate) struct Function {
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// A JSON schema.
    parameters: Option<Value>,
    /// Whether arguments follow the schema; they do in required calls.
    strict: Option<bool>,
}

/// A tool of a response: the fields of its function stand beside the type.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct ResponseTool {
    /// `function`; others are left out, and named in the header `x-gristmill-ignored`.
    pub(super) r#type: String,
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// A JSON schema.
    parameters: Option<Value>,
    /// Whether arguments follow the schema; they do in required calls.
    strict: Option<bool>,
}

/// The tools of a request, and the paths of what is ignored of them.
#[derive(Debug, Default)]
pub(crate) struct ToolsRead {
    pub(crate) tools: Tools,
    /// Tools that are not functions.
    pub(crate) others: Vec<String>,
    /// Fields `strict` that ask for arguments of the schema.
    pub(crate) strict: Vec<String>,
}

impl ToolsRead {
    /// The tools of a chat.
    pub(crate) fn of_chat(tools: Vec<ChatTool>) -> Result<ToolsRead, ApiError> {
        let mut read = ToolsRead::default();
        for (index, ChatTool { r#type, function }) in tools.into_iter().enumerate() {
            match r#type.as_str() {
                "function" => read.function(function.unwrap_or_default(), &format!("tools[{index}].function"))?,
                _ => read.others.push(format!("tools[{index}]")),
            }
        }
        Ok(read)
    }

    /// The tools of a response.
    pub(crate) fn of_response(tools: Vec<ResponseTool>) -> Result<ToolsRead, ApiError> {
        let mut read = ToolsRead::default();
        for (index, tool) in tools.into_iter().enumerate() {
            let ResponseTool { r#type, name, description, parameters, strict } = tool;
            match r#type.as_str() {
                "function" => {
                    read.function(Function { name, description, parameters, strict }, &format!("tools[{index}]"))?;
                }
                other => read.others.push(format!("tools[{index}].{other}")),
            }
        }
        Ok(read)
    }

    /// The tools that may be called, and the choice among them. `has_grammar`: the text follows a grammar, so no tool
    /// is called. Sets the path of the schemas that a required call follows, and adds what changes nothing to
    /// `ignored`.
    pub(crate) fn chosen(
        self,
        choice: Option<&Value>,
        place: NamePlace,
        has_grammar: bool,
        paths: &mut Paths,
        ignored: &mut Vec<String>,
    ) -> Result<(Vec<Tool>, ToolChoice), ApiError> {
        let ToolsRead { mut tools, others, strict } = self;
        let choice = tool_choice(choice, place, &mut tools)?;
        ignored.extend(others);
        if choice == ToolChoice::Auto && !has_grammar {
            // A call that the model chooses is checked to be JSON, and may differ from the schema.
            ignored.extend(strict);
        }
        Ok((tools.chosen(&choice, paths), choice))
    }

    fn function(&mut self, function: Function, at: &str) -> Result<(), ApiError> {
        let Function { name, description, parameters, strict } = function;
        if strict == Some(true) {
            self.strict.push(format!("{at}.strict"));
        }
        let tool = Tool { name: name.unwrap_or_default(), description, parameters };
        self.tools.push(tool, format!("{at}.name"), format!("{at}.parameters"))
    }
}

/// Where an interface writes the name of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NamePlace {
    /// In the field `function`, as chats do.
    Nested,
    /// Beside `type`, as responses do.
    Flat,
}

impl NamePlace {
    fn name(self, tool: &Value) -> Option<String> {
        let function = match self {
            NamePlace::Nested => &tool["function"],
            NamePlace::Flat => tool,
        };
        (tool["type"] == "function").then(|| function["name"].as_str().map(str::to_owned))?
    }

    /// The object with `mode` and `tools` of a choice of the type `allowed_tools`, and its path.
    fn allowed(self, choice: &Value) -> (&Value, &'static str) {
        match self {
            NamePlace::Nested => (&choice["allowed_tools"], "tool_choice.allowed_tools"),
            NamePlace::Flat => (choice, "tool_choice"),
        }
    }

    fn example(self) -> Value {
        match self {
            NamePlace::Nested => json!({"type": "function", "function": {"name": "…"}}),
            NamePlace::Flat => json!({"type": "function", "name": "…"}),
        }
    }
}

/// The choice that a request makes. Tools that it does not allow are removed.
fn tool_choice(choice: Option<&Value>, place: NamePlace, tools: &mut Tools) -> Result<ToolChoice, ApiError> {
    let Some(choice) = choice else { return Ok(ToolChoice::Auto) };
    match (choice.as_str(), choice["type"].as_str(), place.name(choice)) {
        (Some("auto"), ..) => Ok(ToolChoice::Auto),
        (Some("none"), ..) => Ok(ToolChoice::None),
        (Some("required"), ..) => Ok(ToolChoice::Required),
        (_, _, Some(name)) => Ok(ToolChoice::Among(vec![name])),
        (_, Some("allowed_tools"), _) => allowed_tools(choice, place, tools),
        _ => {
            let message = format!("tool_choice is auto, none, required, or {}", place.example());
            Err(ApiError::param("tool_choice", message))
        }
    }
}

fn allowed_tools(choice: &Value, place: NamePlace, tools: &mut Tools) -> Result<ToolChoice, ApiError> {
    let (allowed, at) = place.allowed(choice);
    let wrong = |field: &str, message: String| Err(ApiError::param(format!("{at}.{field}"), message));
    let mut names = Vec::new();
    for (index, tool) in allowed["tools"].as_array().into_iter().flatten().enumerate() {
        match place.name(tool).filter(|name| tools.contains(name)) {
            Some(name) => names.push(name),
            None => return wrong(&format!("tools[{index}]"), "there is no such tool in tools".to_owned()),
        }
    }
    if names.is_empty() {
        return wrong("tools", format!("name at least one tool, as {}", place.example()));
    }
    tools.retain(&names);
    match allowed["mode"].as_str() {
        Some("auto") => Ok(ToolChoice::Auto),
        Some("required") => Ok(ToolChoice::Required),
        _ => wrong("mode", "the mode is auto or required".to_owned()),
    }
}

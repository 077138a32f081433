//! Tools, and what is asked for of them.

use gristmill_engine::engine::Grammar;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::reply::Wanted;

/// A tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tool {
    /// `function`; others are left out, and named in the header `x-gristmill-ignored`.
    r#type: String,
    function: Function,
}

#[derive(Debug, Serialize, ToSchema)]
struct Function {
    name: String,
    description: Option<String>,
    /// A JSON schema.
    parameters: Option<Value>,
    /// Whether arguments follow the schema; they do in calls that are asked for.
    strict: Option<bool>,
}

/// Where an interface writes a function.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ToolForm {
    /// In the field `function`, as chats do.
    Nested,
    /// Beside `type`, as responses do.
    Flat,
}

impl ToolForm {
    fn function(self, tool: &Value) -> &Value {
        match self {
            ToolForm::Nested => &tool["function"],
            ToolForm::Flat => tool,
        }
    }

    /// The path of a function in a tool.
    fn path(self) -> &'static str {
        match self {
            ToolForm::Nested => ".function",
            ToolForm::Flat => "",
        }
    }
}

/// The tools of a request.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    /// Functions, nested: the form that templates know.
    pub(crate) functions: Vec<Value>,
    /// The paths of tools that are not functions.
    pub(crate) others: Vec<String>,
    /// The paths of fields that ask for arguments of the schema.
    strict: Vec<String>,
}

impl Tools {
    pub(crate) fn read(tools: Vec<Value>, form: ToolForm) -> Result<Tools, ApiError> {
        let mut read = Tools::default();
        for (index, tool) in tools.into_iter().enumerate() {
            let at = format!("tools[{index}]");
            match (tool["type"].as_str(), form) {
                (Some("function"), _) => {
                    let (function, path) = (form.function(&tool), form.path());
                    if function["name"].as_str().is_none_or(str::is_empty) {
                        return Err(ApiError::param(format!("{at}{path}.name"), "a function needs a name"));
                    }
                    if function["strict"] == true {
                        read.strict.push(format!("{at}{path}.strict"));
                    }
                    read.functions.push(match form {
                        ToolForm::Nested => tool,
                        ToolForm::Flat => nested(&tool),
                    });
                }
                (Some(_), ToolForm::Nested) => read.others.push(at),
                (Some(kind), ToolForm::Flat) => read.others.push(format!("{at}.{kind}")),
                (None, _) => {
                    return Err(ApiError::param(format!("{at}.type"), "a tool needs a type, such as function"));
                }
            }
        }
        Ok(read)
    }

    /// The tools that the model is told of, and what its reply must be. Adds fields that change nothing to `ignored`.
    pub(crate) fn wanted(
        self,
        choice: ToolChoice,
        grammar: Option<Grammar>,
        ignored: &mut Vec<String>,
    ) -> Result<(Vec<Value>, Wanted), ApiError> {
        ignored.extend(self.others);
        let wanted = match (choice, grammar) {
            (ToolChoice::Call(_), Some(_)) => {
                let message = "a call is asked for, and a format of the text too; leave one of them out";
                return Err(ApiError::param("tool_choice", message));
            }
            (ToolChoice::Call(name), None) => Wanted::Call(name),
            (_, Some(grammar)) => Wanted::Grammar(grammar),
            (ToolChoice::Auto, None) => {
                // A call that the model chooses is checked to be JSON, and may differ from the schema.
                ignored.extend(self.strict);
                Wanted::Anything
            }
            (ToolChoice::None, None) => return Ok((Vec::new(), Wanted::Anything)),
        };
        Ok((self.functions, wanted))
    }
}

/// A flat function in the form of chats.
fn nested(tool: &Value) -> Value {
    let fields = ["name", "description", "parameters", "strict"].into_iter();
    let fields = fields.filter_map(|name| Some((name.to_owned(), tool.get(name).filter(|v| !v.is_null())?.clone())));
    json!({"type": "function", "function": fields.collect::<Map<String, Value>>()})
}

/// What is asked for of tools.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolChoice {
    Auto,
    None,
    /// One call, of this tool or of any.
    Call(Option<String>),
}

impl ToolChoice {
    pub(crate) fn read(choice: &Value, form: ToolForm) -> Result<ToolChoice, ApiError> {
        if choice.is_null() {
            return Ok(ToolChoice::Auto);
        }
        match (choice.as_str(), choice["type"].as_str(), form.function(choice)["name"].as_str()) {
            (Some("auto"), ..) => Ok(ToolChoice::Auto),
            (Some("none"), ..) => Ok(ToolChoice::None),
            (Some("required"), ..) => Ok(ToolChoice::Call(None)),
            (None, Some("function"), Some(name)) => Ok(ToolChoice::Call(Some(name.to_owned()))),
            _ => {
                let object = match form {
                    ToolForm::Nested => r#"{"type": "function", "function": {"name": …}}"#,
                    ToolForm::Flat => r#"{"type": "function", "name": …}"#,
                };
                Err(ApiError::param("tool_choice", format!("tool_choice is auto, none, required, or {object}")))
            }
        }
    }
}

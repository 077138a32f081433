//! Tools, and what is asked for of them.

use gristmill_engine::template;
use gristmill_engine::{ConverseOptions, Grammar, ToolChoice as Choice};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;

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
    pub(crate) functions: Vec<template::Tool>,
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
                    read.functions.push(template::Tool {
                        name: function["name"].as_str().unwrap_or_default().to_owned(),
                        description: function["description"].as_str().map(str::to_owned),
                        parameters: function.get("parameters").filter(|value| !value.is_null()).cloned(),
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

    /// The tools, and what the reply may be. Adds fields that change nothing to `ignored`.
    pub(crate) fn options(
        self,
        tool_choice: Choice,
        grammar: Option<Grammar>,
        parallel_calls: Option<bool>,
        ignored: &mut Vec<String>,
    ) -> (Vec<template::Tool>, ConverseOptions) {
        ignored.extend(self.others);
        if tool_choice == Choice::Auto && grammar.is_none() {
            // A call that the model chooses is checked to be JSON, and may differ from the schema.
            ignored.extend(self.strict);
        }
        let parallel_calls = parallel_calls != Some(false);
        (self.functions, ConverseOptions { tool_choice, parallel_calls, grammar })
    }
}

/// Reads `tool_choice`.
pub(crate) fn tool_choice(choice: &Value, form: ToolForm) -> Result<Choice, ApiError> {
    if choice.is_null() {
        return Ok(Choice::Auto);
    }
    match (choice.as_str(), choice["type"].as_str(), form.function(choice)["name"].as_str()) {
        (Some("auto"), ..) => Ok(Choice::Auto),
        (Some("none"), ..) => Ok(Choice::None),
        (Some("required"), ..) => Ok(Choice::Required),
        (None, Some("function"), Some(name)) => Ok(Choice::Among(vec![name.to_owned()])),
        _ => {
            let object = match form {
                ToolForm::Nested => r#"{"type": "function", "function": {"name": …}}"#,
                ToolForm::Flat => r#"{"type": "function", "name": …}"#,
            };
            Err(ApiError::param("tool_choice", format!("tool_choice is auto, none, required, or {object}")))
        }
    }
}

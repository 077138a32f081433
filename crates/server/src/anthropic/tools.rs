//! Tools, and the choice among them.

use gristmill_engine::ToolChoice;
use gristmill_engine::template::Tool;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::tools::{SchemaField, Tools};

/// A tool.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InputTool {
    /// `custom`, the default. Tools of other types, which are the provider's, are left out, and named in the header
    /// `x-gristmill-ignored`.
    r#type: Option<String>,
    name: Option<String>,
    description: Option<String>,
    /// A JSON schema.
    input_schema: Option<Value>,
    /// Whether the prompt leaves the tool out. A block `tool_reference` in a `tool_result` shows it to the model.
    defer_loading: Option<bool>,
    /// Whether arguments follow the schema; they do in required calls.
    strict: Option<bool>,
}

/// The provider's search among deferred tools. This server has none, so it defers no tool that only this could find.
const TOOL_SEARCH: &str = "tool_search_tool_";

/// Whether the model calls tools.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct InputToolChoice {
    /// `auto`, `any`, `tool`, or `none`.
    r#type: String,
    /// For `tool`.
    name: Option<String>,
    /// Whether a reply has one call at most.
    disable_parallel_tool_use: Option<bool>,
}

/// The tools, and the paths of fields `strict` that request arguments of the schema. Adds the paths of others than
/// functions to `ignored`.
pub(super) fn tools(tools: Vec<InputTool>, ignored: &mut Vec<String>) -> Result<(Tools, Vec<String>), ApiError> {
    let (mut read, mut stricts) = (Tools::default(), Vec::new());
    let is_search = |tool: &InputTool| tool.r#type.as_ref().is_some_and(|kind| kind.starts_with(TOOL_SEARCH));
    let defers = !tools.iter().any(is_search);
    for (index, tool) in tools.into_iter().enumerate() {
        let at = format!("tools[{index}]");
        let InputTool { r#type, name, description, input_schema: parameters, defer_loading, strict } = tool;
        if r#type.is_some_and(|kind| kind != "custom") {
            ignored.push(at);
            continue;
        }
        let is_deferred = defers && defer_loading == Some(true);
        let tool = Tool { name: name.unwrap_or_default(), description, parameters, is_deferred };
        stricts.extend((strict == Some(true)).then(|| format!("{at}.strict")));
        let schema = SchemaField { path: format!("{at}.input_schema"), is_strict: strict == Some(true) };
        read.push(tool, format!("{at}.name"), schema)?;
    }
    Ok((read, stricts))
}

impl InputToolChoice {
    pub(super) fn read(&self) -> Result<ToolChoice, ApiError> {
        match (self.r#type.as_str(), &self.name) {
            ("" | "auto", _) => Ok(ToolChoice::Auto),
            ("none", _) => Ok(ToolChoice::None),
            ("any", _) => Ok(ToolChoice::Required),
            ("tool", Some(name)) => Ok(ToolChoice::Among(vec![name.clone()])),
            ("tool", None) => Err(ApiError::param("tool_choice.name", "the type tool needs the name of a tool")),
            (other, _) => {
                let message = format!("{other:?} is not a choice of tools; use auto, any, tool or none");
                Err(ApiError::param("tool_choice.type", message))
            }
        }
    }

    pub(super) fn parallel_calls(&self) -> bool {
        self.disable_parallel_tool_use != Some(true)
    }
}

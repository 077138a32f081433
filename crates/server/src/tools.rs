//! The tools of a request.

use gristmill_engine::engine::ToolChoice;
use gristmill_engine::template::Tool;

use crate::error::{ApiError, GrammarPath, Paths};

/// The functions that the model may call, and the places of their schemas in the caller's request.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    list: Vec<Tool>,
    schemas: Vec<String>,
}

impl Tools {
    /// Adds a tool, whose name and schema stand at these paths.
    pub(crate) fn push(&mut self, tool: Tool, name: String, schema: String) -> Result<(), ApiError> {
        if tool.name.is_empty() {
            return Err(ApiError::param(name, "a tool needs a name"));
        }
        if self.contains(&tool.name) {
            let message = format!("there is a tool {:?} before this one; give each a name of its own", tool.name);
            return Err(ApiError::param(name, message));
        }
        self.list.push(tool);
        self.schemas.push(schema);
        Ok(())
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.list.iter().any(|tool| tool.name == name)
    }

    /// Keeps the tools with these names.
    pub(crate) fn retain(&mut self, names: &[String]) {
        let (list, schemas) = std::mem::take(self).into_pairs().filter(|(tool, _)| names.contains(&tool.name)).unzip();
        *self = Tools { list, schemas };
    }

    /// The tools for this choice. Sets the path of the schemas that a required call follows.
    pub(crate) fn chosen(self, choice: &ToolChoice, paths: &mut Paths) -> Vec<Tool> {
        if let ToolChoice::Required | ToolChoice::Among(_) = choice {
            paths.grammar = GrammarPath::Tools(self.schemas);
        }
        self.list
    }

    fn into_pairs(self) -> impl Iterator<Item = (Tool, String)> {
        self.list.into_iter().zip(self.schemas)
    }
}

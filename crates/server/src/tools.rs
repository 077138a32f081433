//! The tools of a request.

use gristmill_engine::template::Tool;
use gristmill_engine::{EngineError, ToolChoice, Unenforced};

use crate::error::{ApiError, GrammarPath, Paths, joined};
use crate::request::Conversation;

/// The functions that the model may call, and the places of their schemas in the caller's request.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    list: Vec<Tool>,
    schemas: Vec<SchemaField>,
}

/// The schema of a tool in the caller's request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SchemaField {
    /// Its path.
    pub(crate) path: String,
    /// Whether the tool is `strict`: what cannot be enforced is refused.
    pub(crate) is_strict: bool,
}

impl Tools {
    /// Adds a tool, whose name is at this path.
    pub(crate) fn push(&mut self, tool: Tool, name: String, schema: SchemaField) -> Result<(), ApiError> {
        if tool.name.is_empty() {
            return Err(ApiError::param(name, "a tool needs a name"));
        }
        if self.contains(&tool.name) {
            let message = format!("an earlier tool has the name {:?} too; use different names", tool.name);
            return Err(ApiError::param(name, message));
        }
        self.list.push(tool);
        self.schemas.push(schema);
        Ok(())
    }

    /// Adds tools. A tool replaces an earlier one of the same name.
    pub(crate) fn replace(&mut self, more: Tools) {
        for (tool, schema) in more.into_pairs() {
            match self.list.iter().position(|other| other.name == tool.name) {
                Some(index) => (self.list[index], self.schemas[index]) = (tool, schema),
                None => {
                    self.list.push(tool);
                    self.schemas.push(schema);
                }
            }
        }
    }

    /// The tool with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Tool> {
        self.list.iter().find(|tool| tool.name == name)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Keeps the tools with these names.
    pub(crate) fn retain(&mut self, names: &[String]) {
        let (list, schemas) = std::mem::take(self).into_pairs().filter(|(tool, _)| names.contains(&tool.name)).unzip();
        *self = Tools { list, schemas };
    }

    /// The tools for this choice, and the paths of their schemas. Sets the path of a required call's grammar.
    pub(crate) fn chosen(self, choice: &ToolChoice, paths: &mut Paths) -> (Vec<Tool>, Vec<SchemaField>) {
        if let ToolChoice::Required | ToolChoice::Among(_) = choice {
            paths.grammar = GrammarPath::Tools;
        }
        (self.list, self.schemas)
    }

    fn into_pairs(self) -> impl Iterator<Item = (Tool, SchemaField)> {
        self.list.into_iter().zip(self.schemas)
    }
}

impl Conversation {
    /// Lets calls of these tools have any JSON object as arguments; other tools are none the worse. Returns the paths
    /// of what is not enforced.
    ///
    /// # Errors
    /// If a tool is `strict`, or the only one that can be called.
    pub(crate) fn release(&mut self, unenforced: Vec<Unenforced>) -> Result<Vec<String>, ApiError> {
        let is_only = match &self.options.tool_choice {
            ToolChoice::Required => self.chat.tools.len() == 1,
            ToolChoice::Among(names) => names.len() == 1,
            ToolChoice::Auto | ToolChoice::None => false,
        };
        let mut paths = Vec::new();
        for Unenforced { tool, reason, .. } in unenforced {
            let SchemaField { path, is_strict } = &self.schemas[tool];
            if *is_strict || is_only {
                return Err(refused(path, reason));
            }
            paths.push(match &reason {
                EngineError::Schema { path: keyword, .. } => joined(path, keyword),
                _ => path.clone(),
            });
            self.options.unenforced.push(tool);
        }
        Ok(paths)
    }
}

/// The error of a schema at this path that a call must follow.
fn refused(schema: &str, reason: EngineError) -> ApiError {
    Paths { grammar: GrammarPath::Field(schema.to_owned()), ..Paths::new("messages") }.error(reason)
}

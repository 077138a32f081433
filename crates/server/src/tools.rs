//! The tools of a request.

use gristmill_engine::engine::{GrammarError, ToolChoice, check_tool};
use gristmill_engine::template::Tool;

use crate::error::{ApiError, GrammarPath, Paths, joined};
use crate::request::Conversation;

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
    pub(crate) fn chosen(self, choice: &ToolChoice, paths: &mut Paths) -> (Vec<Tool>, Vec<String>) {
        if let ToolChoice::Required | ToolChoice::Among(_) = choice {
            paths.grammar = GrammarPath::Tools;
        }
        (self.list, self.schemas)
    }

    fn into_pairs(self) -> impl Iterator<Item = (Tool, String)> {
        self.list.into_iter().zip(self.schemas)
    }
}

impl Conversation {
    /// The paths of keywords in the schemas of tools that calls should be held to and are not. The arguments of such a
    /// tool are any JSON object; other tools are none the worse. Takes milliseconds.
    pub(crate) fn unenforced(&self) -> Vec<String> {
        let is_held = |tool: &Tool| match &self.options.tool_choice {
            ToolChoice::Required => true,
            ToolChoice::Among(names) => names.contains(&tool.name),
            // A call that the model chooses is held to its schema if an answer is held to a grammar.
            ToolChoice::Auto => self.options.grammar.is_some() && !self.chat.continues,
            ToolChoice::None => false,
        };
        let held = self.chat.tools.iter().zip(&self.schemas).filter(|(tool, _)| is_held(tool));
        let problem = |(tool, schema): (&Tool, &String)| match check_tool(tool) {
            Ok(()) => None,
            Err(GrammarError::Schema { path, .. }) => Some(joined(schema, &path)),
            Err(_) => Some(schema.clone()),
        };
        held.filter_map(problem).collect()
    }
}

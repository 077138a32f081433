//! How a reply is to be read.

use serde_json::{Map, Value as Json};

use crate::template::Tool;

/// How a reply is to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyOptions {
    /// Calls of tools are events. Otherwise they are content, in Harmony reasoning.
    pub tools: bool,
    /// The JSON schemas of the tools' parameters by the tools' names, as far as they are known. They give the types of
    /// arguments that a model writes as XML, and distinguish a call from other JSON where nothing marks calls.
    pub schemas: Map<String, Json>,
    /// Several calls are events. Otherwise the first one is, and further ones are dropped.
    pub parallel_calls: bool,
}

impl Default for ReplyOptions {
    fn default() -> ReplyOptions {
        ReplyOptions { tools: false, schemas: Map::new(), parallel_calls: true }
    }
}

impl ReplyOptions {
    /// For the tools of a conversation. Calls are events if there are tools.
    pub fn for_tools(tools: &[Tool]) -> ReplyOptions {
        let schemas = tools.iter().map(|tool| (tool.name.clone(), tool.parameters.clone().unwrap_or_default()));
        ReplyOptions { tools: !tools.is_empty(), schemas: schemas.collect(), ..ReplyOptions::default() }
    }
}

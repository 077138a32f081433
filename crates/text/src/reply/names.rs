//! Which names the calls of a reply may have.

use serde_json::{Map, Value as Json};

use super::call::ToolCall;

/// The names.
#[derive(Debug)]
pub(super) struct Names {
    /// The tools of the request by name, as far as they are known.
    tools: Map<String, Json>,
    /// A call before was malformed: a mark after it may be in what was meant as its value.
    is_damaged: bool,
}

impl Names {
    pub(super) fn new(tools: Map<String, Json>) -> Names {
        Names { tools, is_damaged: false }
    }

    /// A call was malformed.
    pub(super) fn damage(&mut self) {
        self.is_damaged = true;
    }

    /// Whether this is a call: of a tool of the request, or of one that a caller may know.
    pub(super) fn allow(&self, call: &ToolCall) -> bool {
        self.tools.contains_key(&call.name) || (is_name(&call.name) && (!self.is_damaged || self.tools.is_empty()))
    }

    /// Whether this is a call of a tool of the request, as far as they are known.
    pub(super) fn know(&self, call: &ToolCall) -> bool {
        self.tools.contains_key(&call.name) || (is_name(&call.name) && self.tools.is_empty())
    }
}

/// Whether a tool that is not known may have this name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
}

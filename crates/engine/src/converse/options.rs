//! Options for the reply to a conversation.

use super::images::ChatImage;
use crate::Grammar;

/// Options for the reply to a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ConverseOptions {
    /// Whether the reply may or must call tools.
    pub tool_choice: ToolChoice,
    /// Whether the reply may have several calls. Otherwise the first call is given and further ones are dropped.
    pub parallel_calls: bool,
    /// The most tokens of reasoning; with 0 the reply has none.
    pub reasoning_tokens: Option<usize>,
    /// The grammar of the answer. It holds from the first token on, so the model does not reason. Where the model
    /// chooses whether to call tools, the reply is such an answer, or a call that follows the schema of its tool; a
    /// required call needs no answer.
    pub grammar: Option<Grammar>,
    /// Tools, by their indices, whose calls have any JSON object as arguments, whatever their schemas say.
    pub unenforced: Vec<usize>,
    /// The images of the messages ([`Message::images`](gristmill_text::template::Message::images)), in their order.
    pub images: Vec<ChatImage>,
}

impl Default for ConverseOptions {
    fn default() -> ConverseOptions {
        ConverseOptions {
            tool_choice: ToolChoice::Auto,
            parallel_calls: true,
            reasoning_tokens: None,
            grammar: None,
            unenforced: Vec::new(),
            images: Vec::new(),
        }
    }
}

/// Whether a reply may or must call tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model chooses.
    #[default]
    Auto,
    /// The prompt has no tools, and what looks like a call is content.
    None,
    /// The reply is a call of any of the tools, with arguments of its schema. A call that a limit cuts is left out.
    Required,
    /// The reply is a call of one of the tools with these names, as for `Required`.
    Among(Vec<String>),
}

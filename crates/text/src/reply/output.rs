//! The events that a parser finds in the text.

use super::call::ToolCall;

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEvent {
    /// Text of the reasoning that precedes an answer.
    Reasoning(String),
    /// Text of the answer.
    Content(String),
    /// A whole call of a tool, whose arguments are a JSON object.
    ToolCall(ToolCall),
}

/// Events; neighbours of one kind are one event, and none is empty.
#[derive(Debug, Default)]
pub(super) struct Output(pub(super) Vec<ReplyEvent>);

impl Output {
    pub(super) fn reasoning(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(ReplyEvent::Reasoning(before)) => before.push_str(text),
            _ => self.0.push(ReplyEvent::Reasoning(text.to_owned())),
        }
    }

    pub(super) fn content(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(ReplyEvent::Content(before)) => before.push_str(text),
            _ => self.0.push(ReplyEvent::Content(text.to_owned())),
        }
    }

    pub(super) fn call(&mut self, call: ToolCall) {
        self.0.push(ReplyEvent::ToolCall(call));
    }
}

//! A reply as a message of the next turn.

use super::call::ToolCall;
use super::form::ParsedReply;
use crate::template::{Arguments, Call, Message, Role};

impl From<ParsedReply> for Message {
    /// The reply as the assistant's message of the next turn.
    ///
    /// ```
    /// use gristmill_text::reply::ReplyForm;
    /// use gristmill_text::template::{Chat, Message, Role};
    /// let mut chat = Chat::new(vec![Message::new(Role::User, "Hello!")]);
    /// chat.messages.push(ReplyForm::plain().parse("Good day.").into());
    /// assert_eq!(chat.messages[1], Message::new(Role::Assistant, "Good day."));
    /// ```
    fn from(reply: ParsedReply) -> Message {
        let ParsedReply { reasoning, content, calls } = reply;
        Message {
            reasoning: (!reasoning.is_empty()).then_some(reasoning),
            calls: calls.into_iter().map(Call::from).collect(),
            ..Message::new(Role::Assistant, content)
        }
    }
}

impl From<ToolCall> for Call {
    /// A call of a reply, without an id.
    fn from(ToolCall { name, arguments }: ToolCall) -> Call {
        Call { id: String::new(), name, arguments: Arguments::from_text(arguments) }
    }
}

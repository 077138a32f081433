//! Tools, calls and results as texts of messages, in the form of Hermes: for a template that shows none, or writes
//! calls in a form that is not read.

use serde_json::Value as Json;

use super::message::{Arguments, Chat, Message, Role};
use crate::reply::{Syntax, Written};

/// A conversation whose tools, calls and results are texts of its messages. The tools are in the system message.
pub(super) fn spelled_out(chat: &Chat) -> Chat {
    let mut messages: Vec<Message> = Vec::with_capacity(chat.messages.len() + 1);
    for mut message in chat.messages.iter().cloned() {
        quote_calls(&mut message, Syntax::generic());
        if message.role == Role::Tool {
            quote_result(&mut message);
        }
        match messages.last_mut() {
            // Templates may require that user and assistant alternate, and a result has the role of the user.
            Some(last) if last.role == Role::User && message.role == Role::User => {
                last.text.push('\n');
                last.text.push_str(&message.text);
            }
            _ => messages.push(message),
        }
    }
    let tools: Vec<String> = chat.listed_tools().map(|tool| tool.definition().to_string()).collect();
    if !tools.is_empty() {
        instruct(&mut messages, &instructions(&tools));
    }
    Chat { messages, tools: Vec::new(), ..chat.clone() }
}

/// A tool's result as a message of the user.
pub(super) fn quote_result(message: &mut Message) {
    *message = Message::new(Role::User, format!("<tool_response>\n{}\n</tool_response>", message.text));
}

/// Calls as text in the form of a model, after the text that their message has.
pub(super) fn quote_calls(message: &mut Message, form: &Syntax) {
    let calls = std::mem::take(&mut message.calls);
    if calls.is_empty() {
        return;
    }
    let written: Vec<Written> = calls.iter().map(|call| (&*call.name, object(&call.arguments))).collect();
    let text = form.call.body.written(&written).or_else(|| Syntax::generic().call.body.written(&written));
    if !message.text.is_empty() {
        message.text.push('\n');
    }
    message.text.push_str(&text.unwrap_or_default());
}

/// Arguments as an object, or their text if it is none.
fn object(arguments: &Arguments) -> Json {
    match arguments {
        Arguments::Named(arguments) => arguments.clone().into(),
        Arguments::Text(text) => serde_json::from_str(text).map_or_else(|_| text.as_str().into(), Json::Object),
    }
}

fn instruct(messages: &mut Vec<Message>, instructions: &str) {
    match messages.first_mut().filter(|message| message.role == Role::System) {
        Some(message) if message.text.is_empty() => message.text = instructions.to_owned(),
        Some(message) => message.text = format!("{}\n\n{instructions}", message.text),
        None => messages.insert(0, Message::new(Role::System, instructions)),
    }
}

/// Instructions for the tools with these definitions.
fn instructions(tools: &[String]) -> String {
    format!(
        "You can call these tools, each with the JSON schema of its arguments:\n<tools>\n{}\n</tools>\nTo call a tool, \
         write one JSON object between marks, and wait for the result between <tool_response> and \
         </tool_response>:\n<tool_call>\n{{\"name\": \"tool\", \"arguments\": {{\"argument\": \
         \"value\"}}}}\n</tool_call>\nIf no tool helps, answer without a call.",
        tools.join("\n")
    )
}

//! What is changed in a conversation that a template refuses, or of which it leaves a message out: a table.
//!
//! `ChatTemplate::render_with_tools` adds the repairs in this order until the template shows every message, and then
//! leaves out those that were not needed. No repair drops a word or changes the order of two texts.

use serde_json::{Map, Value as Json, json};

use super::draft::Draft;
use super::message::{Arguments, Message, Role};
use super::tools;
use crate::reply::written_json;

/// A change of a conversation.
pub(super) type Repair = fn(&mut Draft);

/// The repairs, those that change least first; docs/serve-compatibility.md lists them.
pub(super) const REPAIRS: [Repair; 15] = [
    complete_tools,
    list_no_tools,
    split_calls,
    join_systems,
    lower_systems,
    join_turns,
    alternate,
    quote_orphans,
    add_system,
    move_system,
    write_arguments,
    part_calls,
    quote_calls,
    quote_results,
    make_parts,
];

/// How often repairs are applied at most: one may need another.
const ROUNDS: usize = 3;

/// Applies repairs, in the table's order, until nothing changes.
pub(super) fn apply(repairs: &[Repair], draft: &Draft) -> Draft {
    let mut draft = draft.clone();
    for _ in 0..ROUNDS {
        let before = draft.clone();
        repairs.iter().for_each(|repair| repair(&mut draft));
        if draft == before {
            break;
        }
    }
    draft
}

/// A tool without a description or parameters gets empty ones: some templates cannot do without.
fn complete_tools(draft: &mut Draft) {
    for tool in &mut draft.chat.tools {
        tool.description.get_or_insert_default();
        let parameters = tool.parameters.get_or_insert_with(|| Json::Object(Map::new()));
        if let Json::Object(schema) = parameters {
            schema.entry("type").or_insert_with(|| json!("object"));
            schema.entry("properties").or_insert_with(|| json!({}));
        }
    }
}

/// No tools are an empty list instead of null.
fn list_no_tools(draft: &mut Draft) {
    draft.tools_are_a_list = draft.chat.tools.is_empty();
}

/// A text is a list with one part instead of a string.
fn make_parts(draft: &mut Draft) {
    draft.texts_are_parts = true;
}

/// A tool's result without a call becomes a message of the user.
fn quote_orphans(draft: &mut Draft) {
    // Results follow the message with their calls.
    let mut called = false;
    for message in &mut draft.chat.messages {
        match message.role {
            Role::Tool if called => {}
            Role::Tool => tools::quote_result(message),
            _ => called = !message.calls.is_empty(),
        }
    }
}

/// An assistant's text next to calls becomes a message before them.
fn split_calls(draft: &mut Draft) {
    let split = |message: Message| {
        if message.calls.is_empty() || message.text.is_empty() {
            return [None, Some(message)];
        }
        let calls = Message { text: String::new(), reasoning: None, ..message.clone() };
        [Some(Message { calls: Vec::new(), ..message }), Some(calls)]
    };
    draft.chat.messages = draft.chat.messages.drain(..).flat_map(split).flatten().collect();
}

/// System messages in a row become one.
fn join_systems(draft: &mut Draft) {
    join(&mut draft.chat.messages, |message| message.role == Role::System);
}

/// A system message after the start becomes a message of the user.
fn lower_systems(draft: &mut Draft) {
    let begins = |message: &&mut Message| message.role == Role::System;
    let later = draft.chat.messages.iter_mut().skip_while(begins);
    later.filter(|message| message.role == Role::System).for_each(|message| message.role = Role::User);
}

/// Messages in a row of the user, or of the assistant, become one.
fn join_turns(draft: &mut Draft) {
    join(&mut draft.chat.messages, |message| is_turn(message) && message.role != Role::System);
}

/// Whether this message counts where user and assistant must alternate: calls and their results do not.
fn is_turn(message: &Message) -> bool {
    message.role != Role::Tool && message.calls.is_empty()
}

/// Joins messages in a row that have one role and are all `joined`.
fn join(messages: &mut Vec<Message>, joined: impl Fn(&Message) -> bool) {
    let mut kept: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages.drain(..) {
        match kept.last_mut().filter(|last| last.role == message.role && joined(last) && joined(&message)) {
            Some(last) => {
                append(&mut last.text, "\n\n", &message.text);
                if let Some(reasoning) = &message.reasoning {
                    append(last.reasoning.get_or_insert_default(), "\n\n", reasoning);
                }
            }
            None => kept.push(message),
        }
    }
    *messages = kept;
}

fn append(text: &mut String, separator: &str, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str(separator);
    }
    text.push_str(more);
}

/// Empty messages are put in where user and assistant do not alternate: the user starts, an assistant answers before
/// the user speaks again, and the user speaks between two answers.
fn alternate(draft: &mut Draft) {
    let mut messages: Vec<Message> = Vec::with_capacity(draft.chat.messages.len() + 1);
    let mut turn = None;
    for message in draft.chat.messages.drain(..) {
        let missing = match (message.role, turn) {
            (Role::User, Some(Role::User)) if messages.last().is_some_and(|last| last.role == Role::Tool) => {
                Some(Role::Assistant)
            }
            (Role::Assistant, None | Some(Role::Assistant)) | (Role::Tool, None) => Some(Role::User),
            _ => None,
        };
        if let Some(role) = missing {
            messages.push(Message::new(role, ""));
            turn = Some(role);
        }
        if is_turn(&message) && message.role != Role::System {
            turn = Some(message.role);
        }
        messages.push(message);
    }
    if turn.is_none() {
        messages.push(Message::new(Role::User, ""));
    }
    draft.chat.messages = messages;
}

/// Tools get an empty system message, if there is none.
fn add_system(draft: &mut Draft) {
    let messages = &mut draft.chat.messages;
    if !draft.chat.tools.is_empty() && messages.first().is_none_or(|first| first.role != Role::System) {
        messages.insert(0, Message::new(Role::System, ""));
    }
}

/// The system message moves into the first message, the user's, or becomes one.
fn move_system(draft: &mut Draft) {
    let messages = &mut draft.chat.messages;
    let systems = messages.iter().take_while(|message| message.role == Role::System).count();
    let text = messages.drain(..systems).fold(String::new(), |mut text, message| {
        append(&mut text, "\n\n", &message.text);
        text
    });
    match messages.first_mut() {
        _ if text.is_empty() => {}
        Some(first) if first.role == Role::User => {
            let old = std::mem::replace(&mut first.text, text);
            append(&mut first.text, "\n\n", &old);
        }
        _ => messages.insert(0, Message::new(Role::User, text)),
    }
}

/// The arguments of a call become the text of a JSON object.
fn write_arguments(draft: &mut Draft) {
    for call in draft.chat.messages.iter_mut().flat_map(|message| &mut message.calls) {
        if let Arguments::Named(arguments) = &call.arguments {
            call.arguments = Arguments::Text(written_json(&arguments.clone().into()));
        }
    }
}

/// Calls next to each other become messages of their own, each before its result.
fn part_calls(draft: &mut Draft) {
    let mut messages: Vec<Message> = Vec::with_capacity(draft.chat.messages.len());
    let mut rest = draft.chat.messages.drain(..).peekable();
    while let Some(mut message) = rest.next() {
        if message.calls.len() < 2 {
            messages.push(message);
            continue;
        }
        let mut results = Vec::new();
        while let Some(result) = rest.next_if(|next| next.role == Role::Tool) {
            results.push(result);
        }
        let calls = std::mem::take(&mut message.calls);
        let last = calls.len() - 1;
        for (index, call) in calls.into_iter().enumerate() {
            // Without an id, the order decides.
            let is_own = |(at, result): (usize, &Message)| match &result.call_id {
                Some(id) => *id == call.id,
                None => at == 0,
            };
            let own = results.iter().enumerate().position(is_own).map(|at| results.remove(at));
            messages.push(Message { calls: vec![call], ..message.clone() });
            (message.text, message.reasoning) = (String::new(), None);
            messages.extend(own);
            if index == last {
                messages.append(&mut results);
            }
        }
    }
    drop(rest);
    draft.chat.messages = messages;
}

/// Calls become text of their message.
fn quote_calls(draft: &mut Draft) {
    let form = draft.calls;
    draft.chat.messages.iter_mut().for_each(|message| tools::quote_calls(message, form));
}

/// Tools' results become messages of the user.
fn quote_results(draft: &mut Draft) {
    draft.chat.messages.iter_mut().filter(|message| message.role == Role::Tool).for_each(tools::quote_result);
}

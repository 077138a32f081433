//! A reply in events.

use axum::response::Response;
use axum::response::sse::Event;
use gristmill_engine::engine::Piece;
use serde::Serialize;
use utoipa::ToSchema;

use super::NAMES;
use super::object::ResponseObject;
use super::output::{Change, Output, OutputItem, OutputPart};
use crate::error::ApiError;
use crate::generation::{Choices, Outcome};
use crate::openai::logprobs::TokenLogprob;
use crate::state::App;
use crate::stream::{self, Writer};

/// One event. Its type tells which fields it has.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ResponseEvent<'a> {
    /// `response.created`, `response.in_progress`, `response.output_item.added`, `response.content_part.added`,
    /// `response.reasoning_text.delta`, `response.reasoning_text.done`, `response.output_text.delta`,
    /// `response.output_text.done`, `response.function_call_arguments.delta`, `response.function_call_arguments.done`,
    /// `response.content_part.done`, `response.output_item.done`, `response.completed`, `response.incomplete`,
    /// `response.failed`, or `error`.
    r#type: &'static str,
    /// Counts from 0.
    sequence_number: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a ResponseObject>,
    /// The number of the item.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<&'a OutputItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item_id: Option<&'a str>,
    /// Always 0: an item has one part.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<&'a OutputPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    /// The whole text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// All arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    /// Of the tokens of the delta, or of the whole text.
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<&'a [TokenLogprob]>,
    /// Of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a str>,
}

/// A response that sends the reply in events.
pub(super) fn respond(app: &App, choices: Choices, object: ResponseObject, output: Output) -> Response {
    let sent = Sent { events: Vec::new(), count: 0 };
    stream::respond(app, choices, Events { app: app.clone(), reply: Some((object, output)), sent })
}

struct Events {
    app: App,
    /// Until the last event.
    reply: Option<(ResponseObject, Output)>,
    sent: Sent,
}

/// Numbers events.
struct Sent {
    /// To be sent.
    events: Vec<Event>,
    /// Of all events.
    count: usize,
}

impl Sent {
    fn push(&mut self, event: ResponseEvent) {
        let event = ResponseEvent { sequence_number: self.count, ..event };
        self.count += 1;
        self.events.push(stream::json(&event).event(event.r#type));
    }

    fn response(&mut self, r#type: &'static str, object: &ResponseObject) {
        self.push(ResponseEvent { r#type, response: Some(object), ..ResponseEvent::default() });
    }

    fn change(&mut self, items: &[OutputItem], change: &Change) {
        let (Change::Added(index) | Change::Grown(index, ..) | Change::Done(index)) = *change;
        let item = &items[index];
        let of_item = |r#type| ResponseEvent { r#type, output_index: Some(index), ..ResponseEvent::default() };
        let inside = |r#type| ResponseEvent { item_id: Some(item.id()), ..of_item(r#type) };
        let of_part = |r#type| ResponseEvent { content_index: Some(0), ..inside(r#type) };
        match change {
            Change::Added(_) => {
                self.push(ResponseEvent { item: Some(&item.begun()), ..of_item("response.output_item.added") });
                if let Some(part) = item.part() {
                    self.push(ResponseEvent { part: Some(&part.begun()), ..of_part("response.content_part.added") });
                }
            }
            Change::Grown(_, text, logprobs) => self.push(match item.part() {
                Some(OutputPart::ReasoningText { .. }) => {
                    ResponseEvent { delta: Some(text), ..of_part("response.reasoning_text.delta") }
                }
                Some(OutputPart::OutputText { .. }) => {
                    let logprobs = Some(&logprobs[..]);
                    ResponseEvent { delta: Some(text), logprobs, ..of_part("response.output_text.delta") }
                }
                None => ResponseEvent { delta: Some(text), ..inside("response.function_call_arguments.delta") },
            }),
            Change::Done(_) => {
                if let OutputItem::FunctionCall { name, arguments, .. } = item {
                    let (name, arguments) = (Some(&name[..]), Some(&arguments[..]));
                    self.push(ResponseEvent { name, arguments, ..inside("response.function_call_arguments.done") });
                }
                if let Some(part) = item.part() {
                    self.push(match part {
                        OutputPart::ReasoningText { text } => {
                            ResponseEvent { text: Some(text), ..of_part("response.reasoning_text.done") }
                        }
                        OutputPart::OutputText { text, logprobs, .. } => {
                            let (text, logprobs) = (Some(&text[..]), Some(&logprobs[..]));
                            ResponseEvent { text, logprobs, ..of_part("response.output_text.done") }
                        }
                    });
                    self.push(ResponseEvent { part: Some(part), ..of_part("response.content_part.done") });
                }
                self.push(ResponseEvent { item: Some(item), ..of_item("response.output_item.done") });
            }
        }
    }
}

impl Events {
    fn sent(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.sent.events)
    }
}

impl Writer for Events {
    fn begin(&mut self) -> Vec<Event> {
        if let Some((object, _)) = &self.reply {
            self.sent.response("response.created", object);
            self.sent.response("response.in_progress", object);
        }
        self.sent()
    }

    fn piece(&mut self, _: usize, piece: Piece) -> Vec<Event> {
        if let Some((_, output)) = &mut self.reply {
            for change in output.piece(&self.app, &piece) {
                self.sent.change(&output.items, &change);
            }
        }
        self.sent()
    }

    fn end(&mut self, outcome: Outcome) -> Vec<Event> {
        if let Some((object, output)) = self.reply.take() {
            let object = object.end(output, outcome);
            self.sent.response(object.last_event(), &object);
        }
        self.sent()
    }

    fn error(&mut self, error: &ApiError) -> Vec<Event> {
        let (message, param, code) = error.clone().renamed(&NAMES).body().into_parts();
        let (message, code, param) = (Some(&message[..]), code.or(Some("server_error")), param.as_deref());
        self.sent.push(ResponseEvent { r#type: "error", message, code, param, ..ResponseEvent::default() });
        if let Some((object, output)) = self.reply.take() {
            let object = object.fail(output, error.message.clone());
            self.sent.response(object.last_event(), &object);
        }
        self.sent()
    }
}

//! Replies to responses, whole and in events.

use axum::Json;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use gristmill_engine::Logprob;
use serde::Serialize;
use utoipa::ToSchema;

use super::continued::Continued;
use super::items::{OutputItem, OutputPart, item_id};
use super::object::ResponseObject;
use crate::error::{ApiError, ErrorBody, ErrorDetail};
use crate::models::ServedModel;
use crate::openai::logprobs::TokenLogprob;
use crate::openai::namespaces::Namespaces;
use crate::reply::{Change, Item, ItemKind, Reply, Step};
use crate::stream::{self, Writer};

/// One event. Its type says which fields it has.
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
    /// Log-probabilities of the tokens of the delta, or of the whole text.
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<&'a [TokenLogprob]>,
    /// The code of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a str>,
    /// The same in an object, where OpenAI's server has it, and some clients look for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorDetail>,
}

/// Writes a reply.
pub(super) struct ResponseWriter {
    model: ServedModel,
    /// The reply before its first token.
    object: ResponseObject,
    namespaces: Namespaces,
    /// Keeps the reply.
    continued: Continued,
    /// The number of events.
    sent: usize,
    /// Events to be sent.
    events: Vec<Event>,
}

impl ResponseWriter {
    pub(super) fn new(
        model: ServedModel,
        object: ResponseObject,
        namespaces: Namespaces,
        continued: Continued,
    ) -> ResponseWriter {
        ResponseWriter { model, object, namespaces, continued, sent: 0, events: Vec::new() }
    }

    fn push(&mut self, event: ResponseEvent) {
        let event = ResponseEvent { sequence_number: self.sent, ..event };
        self.sent += 1;
        self.events.push(stream::named(event.r#type, &event));
    }

    fn response(&mut self, r#type: &'static str, object: &ResponseObject) {
        self.push(ResponseEvent { r#type, response: Some(object), ..ResponseEvent::default() });
    }

    fn started(&mut self, index: usize, item: &Item) {
        let started = OutputItem::started(item, &self.namespaces);
        self.push(ResponseEvent { item: Some(&started), ..of_item("response.output_item.added", index) });
        if let Some(part) = OutputPart::started(&item.kind) {
            let id = item_id(item);
            self.push(ResponseEvent { part: Some(&part), ..of_part("response.content_part.added", index, &id) });
        }
    }

    fn grew(&mut self, index: usize, item: &Item, text: &str, logprobs: &[Logprob]) {
        let id = item_id(item);
        let logprobs: Vec<TokenLogprob> = logprobs.iter().map(|one| TokenLogprob::new(&self.model, one)).collect();
        let event = match item.kind {
            ItemKind::Reasoning => of_part("response.reasoning_text.delta", index, &id),
            ItemKind::Text => {
                let event = of_part("response.output_text.delta", index, &id);
                ResponseEvent { logprobs: Some(&logprobs), ..event }
            }
            ItemKind::Call(_) => inside("response.function_call_arguments.delta", index, &id),
        };
        self.push(ResponseEvent { delta: Some(text), ..event });
    }

    fn ended(&mut self, index: usize, item: &Item) {
        let id = item_id(item);
        let ended = OutputItem::new(&self.model, item, &self.namespaces);
        if let OutputItem::FunctionCall { name, arguments, .. } = &ended {
            let event = inside("response.function_call_arguments.done", index, &id);
            self.push(ResponseEvent { name: Some(name), arguments: Some(arguments), ..event });
        }
        if let Some(part) = ended.part() {
            self.push(match part {
                OutputPart::ReasoningText { text } => {
                    ResponseEvent { text: Some(text), ..of_part("response.reasoning_text.done", index, &id) }
                }
                OutputPart::OutputText { text, logprobs, .. } => {
                    let event = of_part("response.output_text.done", index, &id);
                    ResponseEvent { text: Some(text), logprobs: Some(logprobs), ..event }
                }
            });
            self.push(ResponseEvent { part: Some(part), ..of_part("response.content_part.done", index, &id) });
        }
        self.push(ResponseEvent { item: Some(&ended), ..of_item("response.output_item.done", index) });
    }

    /// The whole reply, which is kept.
    fn complete(&self, reply: &Reply) -> ResponseObject {
        let object = self.object.clone().end(&self.model, reply, &self.namespaces);
        self.continued.keep(object.id(), &object);
        object
    }

    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

fn of_item(r#type: &'static str, index: usize) -> ResponseEvent<'static> {
    ResponseEvent { r#type, output_index: Some(index), ..ResponseEvent::default() }
}

fn inside<'a>(r#type: &'static str, index: usize, id: &'a str) -> ResponseEvent<'a> {
    ResponseEvent { item_id: Some(id), ..of_item(r#type, index) }
}

fn of_part<'a>(r#type: &'static str, index: usize, id: &'a str) -> ResponseEvent<'a> {
    ResponseEvent { content_index: Some(0), ..inside(r#type, index, id) }
}

impl Writer for ResponseWriter {
    fn whole(self, reply: &Reply) -> Response {
        Json(self.complete(reply)).into_response()
    }

    fn begin(&mut self, _: &Reply) -> Vec<Event> {
        let object = self.object.clone();
        self.response("response.created", &object);
        self.response("response.in_progress", &object);
        self.events()
    }

    fn step(&mut self, reply: &Reply, step: Step) -> Vec<Event> {
        let items = &reply.choices[step.choice].items;
        for change in &step.changes {
            match change {
                &Change::Began(index) => self.started(index, &items[index]),
                Change::Grew(index, text, logprobs) => self.grew(*index, &items[*index], text, logprobs),
                &Change::Ended(index) => self.ended(index, &items[index]),
            }
        }
        self.events()
    }

    fn end(&mut self, reply: &Reply) -> Vec<Event> {
        let object = self.complete(reply);
        self.response(object.last_event(), &object);
        self.events()
    }

    fn error(&mut self, reply: &Reply, error: &ApiError) -> Vec<Event> {
        let body = error.body();
        self.push(ResponseEvent::of_error(error, &body));
        let object = self.object.clone().fail(&self.model, reply, &self.namespaces, error);
        self.response(object.last_event(), &object);
        self.events()
    }

    fn refusal(error: &ApiError) -> Event {
        let body = error.body();
        stream::named("error", &ResponseEvent::of_error(error, &body))
    }
}

impl<'a> ResponseEvent<'a> {
    fn of_error(error: &'a ApiError, body: &'a ErrorBody) -> ResponseEvent<'a> {
        let message = Some(error.message.as_str());
        let code = error.code.or(Some("server_error"));
        let param = error.param.as_deref();
        let error = Some(body.detail());
        ResponseEvent { r#type: "error", message, code, param, error, ..ResponseEvent::default() }
    }
}

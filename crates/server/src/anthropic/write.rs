//! Replies as Anthropic writes them, whole and in events.

use axum::Json;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use gristmill_engine::FinishReason;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::details::GristmillDetails;
use crate::error::{AnthropicErrorBody, ApiError};
use crate::models::ServedModel;
use crate::reply::{Change, Choice, Item, ItemKind, Reply, Step, random_digits};
use crate::stream::{self, Writer};

/// The reply.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageReply {
    id: String,
    /// `message`.
    r#type: &'static str,
    /// `assistant`.
    role: &'static str,
    content: Vec<OutputBlock>,
    model: String,
    /// `end_turn`, `max_tokens`, `model_context_window_exceeded`, `stop_sequence`, or `tool_use`.
    stop_reason: Option<&'static str>,
    /// The one that ended the text.
    stop_sequence: Option<String>,
    usage: MessageUsage,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OutputBlock {
    /// The model's reasoning; nobody signs it.
    Thinking {
        thinking: String,
        signature: String,
    },
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Map<String, Value>,
    },
}

#[derive(Debug, Serialize, ToSchema)]
struct MessageUsage {
    /// Tokens of the prompt that were computed; at the start of events, all.
    input_tokens: usize,
    /// Always 0: every prompt is cached, at no price.
    cache_creation_input_tokens: usize,
    /// Tokens of the prompt that were in the prefix cache.
    cache_read_input_tokens: usize,
    output_tokens: usize,
    /// At the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    gristmill: Option<GristmillDetails>,
}

/// Writes a reply.
pub(super) struct MessageWriter {
    model: ServedModel,
    id: String,
    /// The most tokens of the reply, as the request has it.
    max_tokens: Option<usize>,
    /// The stop sequences of the request.
    stops: Vec<String>,
    /// Whether a block is open.
    is_open: bool,
    /// Blocks that are closed.
    closed: usize,
}

impl MessageWriter {
    pub(super) fn new(model: ServedModel, max_tokens: Option<usize>, stops: Vec<String>) -> MessageWriter {
        let id = format!("msg_{}{}", random_digits(), random_digits());
        MessageWriter { model, id, max_tokens, stops, is_open: false, closed: 0 }
    }

    /// The reply as far as it is.
    fn message(&self, reply: &Reply) -> MessageReply {
        let items = reply.choices.iter().flat_map(|choice| &choice.items);
        let (stop_reason, stop_sequence) = self.stop_reason(reply);
        MessageReply {
            id: self.id.clone(),
            r#type: "message",
            role: "assistant",
            // A text may be empty; a block may not.
            content: items
                .filter(|item| !item.text.is_empty())
                .map(|item| OutputBlock::new(item, item.text.clone()))
                .collect(),
            model: self.model.name().to_owned(),
            stop_reason,
            stop_sequence,
            usage: MessageUsage::new(&self.model, reply),
        }
    }

    /// Why the reply ended, and the stop sequence that ended it.
    fn stop_reason(&self, reply: &Reply) -> (Option<&'static str>, Option<String>) {
        let has_calls = |choice: &Choice| choice.calls().next().is_some();
        let ended = reply.choices.iter().find_map(|choice| Some((choice.finish?, has_calls(choice))));
        match ended {
            None => (None, None),
            Some((finish, _)) if finish.reason == FinishReason::Length => {
                let is_full = self.max_tokens.is_none_or(|most| finish.usage.generated_tokens < most);
                (Some(if is_full { "model_context_window_exceeded" } else { "max_tokens" }), None)
            }
            Some((_, true)) => (Some("tool_use"), None),
            Some((finish, false)) => match finish.stop.and_then(|stop| self.stops.get(stop)) {
                Some(stop) => (Some("stop_sequence"), Some(stop.clone())),
                None => (Some("end_turn"), None),
            },
        }
    }

    fn change(&mut self, items: &[Item], change: &Change) -> Vec<Event> {
        match change {
            Change::Began(_) => Vec::new(),
            Change::Grew(index, text, _) => {
                let item = &items[*index];
                let start = (!self.is_open).then(|| {
                    let block = OutputBlock::new(item, String::new());
                    event("content_block_start", json!({"index": self.closed, "content_block": block}))
                });
                self.is_open = true;
                let delta = event("content_block_delta", json!({"index": self.closed, "delta": delta(item, text)}));
                start.into_iter().chain([delta]).collect()
            }
            Change::Ended(_) if std::mem::take(&mut self.is_open) => {
                self.closed += 1;
                vec![event("content_block_stop", json!({"index": self.closed - 1}))]
            }
            Change::Ended(_) => Vec::new(),
        }
    }
}

/// An event of this name, which its data repeat as their type.
fn event(name: &str, mut data: Value) -> Event {
    data["type"] = name.into();
    stream::named(name, &data)
}

/// The text that was appended to an item.
fn delta(item: &Item, text: &str) -> Value {
    match item.kind {
        ItemKind::Reasoning => json!({"type": "thinking_delta", "thinking": text}),
        ItemKind::Text => json!({"type": "text_delta", "text": text}),
        ItemKind::Call(_) => json!({"type": "input_json_delta", "partial_json": text}),
    }
}

impl OutputBlock {
    /// The block of an item, which has so much of its text.
    fn new(item: &Item, text: String) -> OutputBlock {
        match &item.kind {
            ItemKind::Reasoning => OutputBlock::Thinking { thinking: text, signature: String::new() },
            ItemKind::Text => OutputBlock::Text { text },
            ItemKind::Call(name) => OutputBlock::ToolUse {
                id: format!("toolu_{}", item.id),
                name: name.clone(),
                input: serde_json::from_str(&text).unwrap_or_default(),
            },
        }
    }
}

impl MessageUsage {
    fn new(model: &ServedModel, reply: &Reply) -> MessageUsage {
        let usage = reply.choices.iter().find_map(|choice| choice.finish).map(|finish| finish.usage);
        let prompt_tokens = reply.choices.first().map_or(0, |choice| choice.prompt.len());
        let reused_tokens = usage.map_or(0, |usage| usage.reused_tokens);
        MessageUsage {
            input_tokens: prompt_tokens.saturating_sub(reused_tokens),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: reused_tokens,
            output_tokens: usage.map_or(0, |usage| usage.generated_tokens),
            gristmill: usage.map(|_| GristmillDetails::new(model, reply)),
        }
    }
}

impl Writer for MessageWriter {
    fn whole(self, reply: &Reply) -> Response {
        Json(self.message(reply)).into_response()
    }

    fn begin(&mut self, reply: &Reply) -> Vec<Event> {
        vec![event("message_start", json!({"message": self.message(reply)}))]
    }

    fn step(&mut self, reply: &Reply, step: Step) -> Vec<Event> {
        let items = &reply.choices[step.choice].items;
        step.changes.iter().flat_map(|change| self.change(items, change)).collect()
    }

    fn end(&mut self, reply: &Reply) -> Vec<Event> {
        let (reason, sequence) = self.stop_reason(reply);
        let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
        let usage = MessageUsage::new(&self.model, reply);
        vec![event("message_delta", json!({"delta": delta, "usage": usage})), event("message_stop", json!({}))]
    }

    fn refusal(error: &ApiError) -> Event {
        stream::named("error", &AnthropicErrorBody::new(error))
    }
}

//! Replies as Anthropic writes them, whole and in events.

use axum::response::sse::Event;
use gristmill_engine::engine::{Finish, FinishReason, Piece};
use gristmill_engine::reply::{ParsedReply, Reply, ReplyEvent, ToolCall};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::generation::{self, Outcome, call_id, id};
use crate::openai::usage::GristmillDetails;
use crate::state::App;
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
    /// `end_turn`, `max_tokens`, `stop_sequence`, or `tool_use`.
    stop_reason: Option<&'static str>,
    /// The one that ended the text.
    stop_sequence: Option<String>,
    usage: MessageUsage,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OutputBlock {
    /// What the model thought; nobody signs it.
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

#[derive(Debug, Clone, Default, Serialize, ToSchema)]
struct MessageUsage {
    /// Tokens of the prompt that were computed.
    input_tokens: usize,
    /// Always 0: every prompt is cached, at no price.
    cache_creation_input_tokens: usize,
    /// Tokens of the prompt whose state was in the prefix cache.
    cache_read_input_tokens: usize,
    output_tokens: usize,
    /// At the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    gristmill: Option<GristmillDetails>,
}

impl MessageUsage {
    fn new(finish: &Finish, outcome: Outcome) -> MessageUsage {
        let usage = &finish.usage;
        MessageUsage {
            gristmill: Some(GristmillDetails::new(outcome)),
            input_tokens: usage.prompt_tokens - usage.reused_tokens,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: usage.reused_tokens,
            output_tokens: usage.generated_tokens,
        }
    }
}

/// Why a generation ended, and the stop sequence that ended it.
fn stop_reason(finish: &Finish, has_calls: bool, stops: &[String]) -> (&'static str, Option<String>) {
    match finish.reason {
        FinishReason::Length => ("max_tokens", None),
        _ if has_calls => ("tool_use", None),
        FinishReason::Stop => ("stop_sequence", finish.stop.and_then(|stop| stops.get(stop)).cloned()),
        _ => ("end_turn", None),
    }
}

/// A call as a block; its arguments are the text of an object.
fn tool_use(call: ToolCall) -> OutputBlock {
    let input = serde_json::from_str(&call.arguments).unwrap_or_default();
    OutputBlock::ToolUse { id: call_id(), name: call.name, input }
}

impl MessageReply {
    /// Before the first token.
    pub(super) fn new(app: &App) -> MessageReply {
        MessageReply {
            id: id("msg"),
            r#type: "message",
            role: "assistant",
            content: Vec::new(),
            model: app.options.name.clone(),
            stop_reason: None,
            stop_sequence: None,
            usage: MessageUsage::default(),
        }
    }

    pub(super) fn complete(mut self, parts: ParsedReply, outcome: Outcome, stops: &[String]) -> MessageReply {
        let ParsedReply { reasoning, content, calls } = parts;
        let has_calls = !calls.is_empty();
        if !reasoning.is_empty() {
            self.content.push(OutputBlock::Thinking { thinking: reasoning, signature: String::new() });
        }
        if !content.is_empty() {
            self.content.push(OutputBlock::Text { text: content });
        }
        self.content.extend(calls.into_iter().map(tool_use));
        if let Some(finish) = outcome.endings.iter().find_map(|ending| ending.finish) {
            let (reason, sequence) = stop_reason(&finish, has_calls, stops);
            (self.stop_reason, self.stop_sequence) = (Some(reason), sequence);
            self.usage = MessageUsage::new(&finish, outcome);
        }
        self
    }
}

/// A reply in events.
pub(super) struct Events {
    reply: MessageReply,
    stops: Vec<String>,
    reader: Reply,
    /// The type of the block that is open.
    open: Option<&'static str>,
    /// Blocks that are closed.
    closed: usize,
}

/// An event of this name, which its data repeat as their type.
fn event(name: &str, mut data: Value) -> Event {
    data["type"] = name.into();
    stream::json(&data).event(name)
}

impl Events {
    pub(super) fn new(reply: MessageReply, stops: Vec<String>, reader: Reply) -> Events {
        Events { reply, stops, reader, open: None, closed: 0 }
    }

    /// Opens a block, unless one of this type is open.
    fn open(&mut self, kind: &'static str, block: &OutputBlock, events: &mut Vec<Event>) {
        if self.open == Some(kind) {
            return;
        }
        self.close(events);
        self.open = Some(kind);
        events.push(event("content_block_start", json!({"index": self.closed, "content_block": block})));
    }

    fn close(&mut self, events: &mut Vec<Event>) {
        if self.open.take().is_some() {
            events.push(event("content_block_stop", json!({"index": self.closed})));
            self.closed += 1;
        }
    }

    fn delta(&self, delta: Value) -> Event {
        event("content_block_delta", json!({"index": self.closed, "delta": delta}))
    }

    fn write(&mut self, read: ReplyEvent, events: &mut Vec<Event>) {
        match read {
            ReplyEvent::Reasoning(text) => {
                let block = OutputBlock::Thinking { thinking: String::new(), signature: String::new() };
                self.open("thinking", &block, events);
                events.push(self.delta(json!({"type": "thinking_delta", "thinking": text})));
            }
            ReplyEvent::Content(text) => {
                self.open("text", &OutputBlock::Text { text: String::new() }, events);
                events.push(self.delta(json!({"type": "text_delta", "text": text})));
            }
            ReplyEvent::ToolCall(call) => {
                let arguments = call.arguments.clone();
                let block = tool_use(ToolCall { arguments: "{}".to_owned(), ..call });
                self.open("tool_use", &block, events);
                events.push(self.delta(json!({"type": "input_json_delta", "partial_json": arguments})));
                // The next call is a block of its own.
                self.close(events);
            }
        }
    }
}

impl Writer for Events {
    fn begin(&mut self) -> Vec<Event> {
        vec![event("message_start", json!({"message": self.reply}))]
    }

    fn piece(&mut self, _: usize, piece: Piece) -> Vec<Event> {
        let mut events = Vec::new();
        for read in generation::events(&mut self.reader, &piece.text, piece.finish.is_some()) {
            self.write(read, &mut events);
        }
        if piece.finish.is_some() {
            self.close(&mut events);
        }
        events
    }

    fn end(&mut self, outcome: Outcome) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(finish) = outcome.endings.iter().find_map(|ending| ending.finish) {
            let (reason, sequence) = stop_reason(&finish, self.reader.has_calls(), &self.stops);
            let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
            let usage = MessageUsage::new(&finish, outcome);
            events.push(event("message_delta", json!({"delta": delta, "usage": usage})));
        }
        events.push(event("message_stop", json!({})));
        events
    }

    fn error(&mut self, error: &ApiError) -> Vec<Event> {
        vec![stream::json(&error.anthropic_body()).event("error")]
    }
}

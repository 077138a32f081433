//! Replies to chats, whole and in events.

use axum::Json;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use gristmill_engine::Logprob;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::models::ServedModel;
use crate::openai::common::StreamedUsage;
use crate::openai::head::{Head, finish_reason};
use crate::openai::logprobs::TokenLogprob;
use crate::openai::messages::{FunctionCall, ToolCall};
use crate::openai::traces::Traces;
use crate::openai::usage::Usage;
use crate::reply::{Change, Choice, Item, ItemKind, Reply, Step};
use crate::stream::{self, Writer};

/// The reply.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    #[serde(flatten)]
    head: Head,
    choices: Vec<ChatChoice>,
    /// With `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Vec<u32>>,
    usage: Usage,
}

/// One event of a reply in events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatChunk<'a> {
    #[serde(flatten)]
    head: &'a Head,
    choices: Vec<ChunkChoice>,
    /// With `return_token_ids`, in the first event of each choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Vec<u32>>,
    /// In the event before the last, if `stream_options.include_usage` requests it; in the others too with
    /// `stream_options.continuous_usage_stats`.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChatChoice {
    index: usize,
    message: AssistantMessage,
    logprobs: Option<ChatLogprobs>,
    /// `stop`, `tool_calls`, or `length`.
    finish_reason: Option<&'static str>,
    /// The generated tokens, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gristmill: Option<Traces>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AssistantMessage {
    /// `assistant`.
    role: &'static str,
    content: Option<String>,
    /// Always null: this server refuses with errors.
    refusal: Option<String>,
    /// The model's reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
struct ChunkChoice {
    index: usize,
    delta: Delta,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    /// The generated tokens of this event, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gristmill: Option<Traces>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChatLogprobs {
    content: Vec<TokenLogprob>,
    refusal: Option<Vec<TokenLogprob>>,
}

/// Writes a reply.
pub(super) struct ChatWriter {
    model: ServedModel,
    head: Head,
    streamed: StreamedUsage,
    /// Whether the ids of tokens are returned.
    token_ids: bool,
}

impl ChatWriter {
    pub(super) fn new(model: ServedModel, streamed: StreamedUsage, token_ids: bool) -> ChatWriter {
        let head = Head::new(&model, "chatcmpl", "chat.completion.chunk");
        ChatWriter { model, head, streamed, token_ids }
    }

    fn choice(&self, index: usize, choice: &Choice) -> ChatChoice {
        let reasoning = choice.text(&ItemKind::Reasoning);
        let content = choice.text(&ItemKind::Text);
        let calls: Vec<ToolCall> = choice.calls().map(|(item, name)| tool_call(None, item, name)).collect();
        let message = AssistantMessage {
            role: "assistant",
            // A call needs no words.
            content: (calls.is_empty() || !content.is_empty()).then_some(content),
            refusal: None,
            reasoning_content: (!reasoning.is_empty()).then_some(reasoning),
            tool_calls: (!calls.is_empty()).then_some(calls),
        };
        let logprobs = self.logprobs(&choice.logprobs);
        let gristmill = Traces::new(&self.model, &choice.traces);
        let finish_reason = finish_reason(choice);
        let token_ids = self.token_ids.then(|| choice.tokens.clone());
        ChatChoice { index, message, logprobs, finish_reason, token_ids, gristmill }
    }

    fn logprobs(&self, logprobs: &[Logprob]) -> Option<ChatLogprobs> {
        let content = || logprobs.iter().map(|logprob| TokenLogprob::new(&self.model, logprob)).collect();
        (!logprobs.is_empty()).then(|| ChatLogprobs { content: content(), refusal: None })
    }

    /// The first event of a choice.
    fn first(&self, reply: &Reply, index: usize) -> Event {
        let delta = Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
        let usage = self.streamed.in_each.then(|| Usage::so_far(reply));
        let choice = ChunkChoice { index, delta, ..ChunkChoice::default() };
        let prompt_token_ids = self.prompt(reply);
        stream::json(&ChatChunk { head: &self.head, choices: vec![choice], prompt_token_ids, usage })
    }

    fn chunk(&self, reply: &Reply, choice: ChunkChoice) -> Event {
        let usage = self.streamed.in_each.then(|| Usage::so_far(reply));
        stream::json(&ChatChunk { head: &self.head, choices: vec![choice], prompt_token_ids: None, usage })
    }

    /// The tokens of the prompt, which all choices share, if they are returned.
    fn prompt(&self, reply: &Reply) -> Option<Vec<u32>> {
        reply.choices.first().filter(|_| self.token_ids).map(|choice| choice.prompt.to_vec())
    }
}

/// A call for clients, in events with its index.
fn tool_call(index: Option<usize>, item: &Item, name: &str) -> ToolCall {
    let function = FunctionCall { name: name.to_owned(), arguments: item.text.clone() };
    ToolCall { index, id: format!("call_{}", item.id), r#type: "function", function }
}

/// The delta of a change: growth, and the start of a text that a separator joins to an earlier one.
fn delta(choice: &Choice, change: Change) -> Option<Delta> {
    let (index, text) = match change {
        Change::Began(index) => (index, choice.items[index].separator.to_owned()),
        Change::Grew(index, text, _) => (index, text),
        Change::Ended(_) => return None,
    };
    let item = &choice.items[index];
    Some(match &item.kind {
        _ if text.is_empty() => return None,
        ItemKind::Reasoning => Delta { reasoning_content: Some(text), ..Delta::default() },
        ItemKind::Text => Delta { content: Some(text), ..Delta::default() },
        ItemKind::Call(name) => {
            let before = choice.items[..index].iter().filter(|item| matches!(item.kind, ItemKind::Call(_)));
            let call = tool_call(Some(before.count()), item, name);
            Delta { tool_calls: Some(vec![call]), ..Delta::default() }
        }
    })
}

impl Writer for ChatWriter {
    fn whole(mut self, reply: &Reply) -> Response {
        self.head.object = "chat.completion";
        let choices = reply.choices.iter().enumerate().map(|(index, choice)| self.choice(index, choice)).collect();
        let usage = Usage::new(&self.model, reply);
        let prompt_token_ids = self.prompt(reply);
        Json(ChatCompletion { choices, prompt_token_ids, usage, head: self.head }).into_response()
    }

    fn begin(&mut self, reply: &Reply) -> Vec<Event> {
        (0..reply.choices.len()).map(|index| self.first(reply, index)).collect()
    }

    fn step(&mut self, reply: &Reply, step: Step) -> Vec<Event> {
        let Step { choice: index, token, changes, logprob, trace } = step;
        let choice = &reply.choices[index];
        let (mut logprobs, mut gristmill) =
            (self.logprobs(logprob.as_slice()), Traces::new(&self.model, trace.as_slice()));
        let mut token_ids = self.token_ids.then(|| vec![token]);
        let mut deltas: Vec<Delta> = changes.into_iter().filter_map(|change| delta(choice, change)).collect();
        if deltas.is_empty() && (logprobs.is_some() || gristmill.is_some() || token_ids.is_some()) {
            deltas.push(Delta { content: Some(String::new()), ..Delta::default() });
        }
        let chunk = |delta| {
            let (logprobs, gristmill, token_ids) = (logprobs.take(), gristmill.take(), token_ids.take());
            self.chunk(reply, ChunkChoice { index, delta, logprobs, token_ids, gristmill, ..ChunkChoice::default() })
        };
        let mut events: Vec<Event> = deltas.into_iter().map(chunk).collect();
        if choice.finish.is_some() {
            let last = ChunkChoice { index, finish_reason: finish_reason(choice), ..ChunkChoice::default() };
            events.push(self.chunk(reply, last));
        }
        events
    }

    fn end(&mut self, reply: &Reply) -> Vec<Event> {
        let usage = self.streamed.at_end.then(|| Usage::new(&self.model, reply));
        let chunk = |usage| {
            let (choices, prompt_token_ids) = (Vec::new(), None);
            stream::json(&ChatChunk { head: &self.head, choices, prompt_token_ids, usage: Some(usage) })
        };
        usage.map(chunk).into_iter().chain([Event::default().data("[DONE]")]).collect()
    }

    fn refusal(error: &ApiError) -> Event {
        stream::json(&error.body())
    }
}

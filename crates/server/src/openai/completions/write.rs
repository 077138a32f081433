//! Completions, whole and in events.

use std::collections::BTreeMap;

use axum::Json;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use gristmill_engine::Logprob;
use gristmill_engine::tokenizer::StreamDecoder;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::models::ServedModel;
use crate::openai::common::StreamedUsage;
use crate::openai::head::{Head, finish_reason};
use crate::openai::traces::Traces;
use crate::openai::usage::Usage;
use crate::reply::{Change, Choice, ItemKind, Reply, Step};
use crate::stream::{self, Writer};

/// The reply, or one event of a reply in events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Completion<'a> {
    #[serde(flatten)]
    head: &'a Head,
    choices: Vec<CompletionChoice>,
    /// In the event before the last, if `stream_options.include_usage` requests it; in the others too with
    /// `stream_options.continuous_usage_stats`.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Debug, Serialize, ToSchema)]
struct CompletionChoice {
    text: String,
    index: usize,
    logprobs: Option<CompletionLogprobs>,
    /// `stop` or `length`.
    finish_reason: Option<&'static str>,
    /// The tokens of the prompt, with `return_token_ids`; in events in the first of a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Vec<u32>>,
    /// The generated tokens, with `return_token_ids`; in events those of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gristmill: Option<Traces>,
}

/// Lists with one entry for each token.
#[derive(Debug, Default, Serialize, ToSchema)]
struct CompletionLogprobs {
    tokens: Vec<String>,
    /// Null for the first token of a prompt.
    token_logprobs: Vec<Option<f32>>,
    /// The most likely tokens by their texts; null for the first token of a prompt.
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    /// The character of the text to which the first byte of each token belongs.
    text_offset: Vec<usize>,
}

/// Where the tokens of a text start.
#[derive(Debug)]
struct Offsets {
    decoder: StreamDecoder,
    /// Characters before the next token, without one that is incomplete.
    characters: usize,
}

/// The parts of a text that a reply returns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    pub(super) prompt: bool,
    pub(super) completion: bool,
}

/// Writes a reply.
pub(super) struct CompletionWriter {
    model: ServedModel,
    head: Head,
    streamed: StreamedUsage,
    parts: Parts,
    /// Whether the ids of tokens are returned.
    token_ids: bool,
    /// The offsets of each choice, in events.
    offsets: Vec<Offsets>,
}

impl CompletionWriter {
    pub(super) fn new(model: ServedModel, streamed: StreamedUsage, parts: Parts, token_ids: bool) -> CompletionWriter {
        let head = Head::new(&model, "cmpl", "text_completion");
        CompletionWriter { model, head, streamed, parts, token_ids, offsets: Vec::new() }
    }

    fn choice(&self, index: usize, choice: &Choice) -> CompletionChoice {
        let mut text = String::new();
        let mut logprobs = CompletionLogprobs::default();
        let mut characters = 0;
        if let Some((&first, rest)) = choice.prompt.split_first().filter(|_| self.parts.prompt) {
            text = self.model.text(&choice.prompt);
            characters = text.chars().count();
            let mut offsets = Offsets { decoder: StreamDecoder::new(true), characters: 0 };
            if !choice.prompt_logprobs.is_empty() || rest.is_empty() {
                logprobs.push(&self.model, &mut offsets, first, None);
            }
            for logprob in &choice.prompt_logprobs {
                logprobs.push(&self.model, &mut offsets, logprob.token, Some(logprob));
            }
        }
        if self.parts.completion {
            text += &choice.text(&ItemKind::Text);
            let mut offsets = Offsets::of_completion(characters);
            for logprob in &choice.logprobs {
                logprobs.push(&self.model, &mut offsets, logprob.token, Some(logprob));
            }
        }
        let logprobs = (!choice.logprobs.is_empty()).then_some(logprobs);
        let finish_reason = if self.parts.completion { finish_reason(choice) } else { Some("length") };
        let gristmill = Traces::new(&self.model, &choice.traces).filter(|_| self.parts.completion);
        let prompt_token_ids = self.token_ids.then(|| choice.prompt.to_vec());
        let token_ids = self.token_ids.then(|| choice.tokens.clone()).filter(|_| self.parts.completion);
        CompletionChoice { text, index, logprobs, finish_reason, prompt_token_ids, token_ids, gristmill }
    }

    fn usage(&self, reply: &Reply) -> Usage {
        let usage = Usage::new(&self.model, reply);
        if self.parts.completion { usage } else { usage.of_prompts() }
    }

    fn event(&self, choices: Vec<CompletionChoice>, usage: Option<Usage>) -> Event {
        stream::json(&Completion { head: &self.head, choices, usage })
    }
}

impl CompletionLogprobs {
    /// Adds the next token.
    fn push(&mut self, model: &ServedModel, offsets: &mut Offsets, token: u32, logprob: Option<&Logprob>) {
        self.text_offset.push(offsets.next(model, token));
        self.tokens.push(model.token_text(token));
        self.token_logprobs.push(logprob.map(|logprob| logprob.logprob));
        let top = |logprob: &Logprob| {
            let mut top = BTreeMap::new();
            for &(token, value) in &logprob.top {
                // The most likely of tokens with one text.
                top.entry(model.token_text(token)).or_insert(value);
            }
            top
        };
        self.top_logprobs.push(logprob.map(top));
    }
}

impl Offsets {
    /// The offsets of a completion after this number of characters. As in the engine, it continues a text.
    fn of_completion(characters: usize) -> Offsets {
        Offsets { decoder: StreamDecoder::continuing(true), characters }
    }

    /// The offset of the next token. Control tokens have no characters.
    fn next(&mut self, model: &ServedModel, token: u32) -> usize {
        let offset = self.characters;
        let text = model.engine.model().tokenizer().ok().and_then(|t| self.decoder.push(t, token).ok());
        self.characters += text.map_or(0, |text| text.chars().count());
        offset
    }
}

impl Writer for CompletionWriter {
    fn whole(self, reply: &Reply) -> Response {
        let choices = reply.choices.iter().enumerate().map(|(index, choice)| self.choice(index, choice)).collect();
        Json(Completion { head: &self.head, choices, usage: Some(self.usage(reply)) }).into_response()
    }

    fn begin(&mut self, reply: &Reply) -> Vec<Event> {
        self.offsets = reply.choices.iter().map(|_| Offsets::of_completion(0)).collect();
        Vec::new()
    }

    fn step(&mut self, reply: &Reply, step: Step) -> Vec<Event> {
        let Step { choice: index, token, changes, logprob, trace } = step;
        let grown = changes.into_iter().filter_map(|change| match change {
            Change::Grew(_, text, _) => Some(text),
            _ => None,
        });
        let text: String = grown.collect();
        let logprobs = logprob.map(|logprob| {
            let mut logprobs = CompletionLogprobs::default();
            logprobs.push(&self.model, &mut self.offsets[index], logprob.token, Some(&logprob));
            logprobs
        });
        let finish_reason = finish_reason(&reply.choices[index]);
        let gristmill = Traces::new(&self.model, trace.as_slice());
        let token_ids = self.token_ids.then(|| vec![token]);
        let choice = &reply.choices[index];
        let prompt_token_ids = (self.token_ids && choice.tokens.len() == 1).then(|| choice.prompt.to_vec());
        let has_more = logprobs.is_some() || gristmill.is_some() || token_ids.is_some() || finish_reason.is_some();
        if text.is_empty() && !has_more {
            return Vec::new();
        }
        let usage = self.streamed.in_each.then(|| Usage::so_far(reply));
        let choice = CompletionChoice { text, index, logprobs, finish_reason, prompt_token_ids, token_ids, gristmill };
        vec![self.event(vec![choice], usage)]
    }

    fn end(&mut self, reply: &Reply) -> Vec<Event> {
        let usage = self.streamed.at_end.then(|| self.event(Vec::new(), Some(self.usage(reply))));
        usage.into_iter().chain([Event::default().data("[DONE]")]).collect()
    }

    fn refusal(error: &ApiError) -> Event {
        stream::json(&error.body())
    }
}

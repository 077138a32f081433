//! One request, from its prompt to its last piece.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use gristmill_kernels::ops::Sampling;

use super::dry::Repetition;
use super::stop::{Scan, StopStrings};
use super::{EngineError, Event, Finish, FinishReason, Piece, Request, SamplingOptions, Usage};
use crate::tokenizer::{StreamDecoder, Tokenizer};

/// A request and its progress.
#[derive(Debug)]
pub(super) struct Job {
    /// Until the job enters a slot.
    pub(super) prompt: Vec<u32>,
    /// See [`Request::tenant`].
    pub(super) tenant: u64,
    sampling: SamplingOptions,
    max_tokens: usize,
    /// See [`Request::min_tokens`].
    min_tokens: usize,
    ignore_end: bool,
    decoder: StreamDecoder,
    stops: StopStrings,
    /// The bias of the request, in ascending order of the tokens.
    given_bias: Vec<(u32, f32)>,
    /// `given_bias`, DRY's penalties and what keeps the text from ending, as of the last [`Self::observe`].
    bias: Vec<(u32, f32)>,
    repetition: Option<Repetition>,
    /// Tokens generated so far and how often, if a penalty looks at them.
    counts: Vec<(u32, u32)>,
    usage: Usage,
    /// The start of the first step, then the first token.
    since: Option<Instant>,
    events: Sender<Event>,
    cancelled: Arc<AtomicBool>,
}

impl Job {
    pub(super) fn new(
        mut request: Request,
        prompt: Vec<u32>,
        repetition: Option<Repetition>,
        decoder: StreamDecoder,
        events: Sender<Event>,
        cancelled: Arc<AtomicBool>,
    ) -> Job {
        request.logit_bias.sort_unstable_by_key(|&(token, _)| token);
        Job {
            usage: Usage { prompt_tokens: prompt.len(), ..Usage::default() },
            prompt,
            tenant: request.tenant,
            sampling: request.sampling,
            max_tokens: request.max_tokens.unwrap_or(usize::MAX),
            min_tokens: request.min_tokens,
            ignore_end: request.ignore_end,
            decoder,
            stops: StopStrings::new(&request.stop),
            bias: request.logit_bias.clone(),
            given_bias: request.logit_bias,
            repetition,
            counts: Vec::new(),
            since: None,
            events,
            cancelled,
        }
    }

    /// Whether the caller has cancelled the request.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Enters a slot of which `reused` tokens of state are kept.
    pub(super) fn begin(&mut self, reused: usize) {
        self.usage.reused_tokens = reused;
        self.since = Some(Instant::now());
    }

    /// Computes the bias of the next token from the text so far, prompt included.
    pub(super) fn observe(&mut self, text: &[u32], tokenizer: Option<&Tokenizer>) {
        if self.repetition.is_none() && self.min_tokens == 0 {
            return;
        }
        self.bias.clone_from(&self.given_bias);
        let penalties = self.repetition.iter_mut().flat_map(|repetition| repetition.penalties(text, tokenizer));
        let lower = |(token, penalty): (u32, f32)| match self.given_bias.binary_search_by_key(&token, |&(id, _)| id) {
            // Finite numbers may have a sum that is not.
            Ok(index) => self.bias[index].1 = (self.bias[index].1 - penalty).max(-f32::MAX),
            Err(_) => self.bias.push((token, -penalty)),
        };
        penalties.for_each(lower);
        if self.usage.generated_tokens < self.min_tokens {
            for &end in tokenizer.map_or(&[][..], Tokenizer::end_of_generation) {
                match self.bias.iter_mut().find(|(token, _)| *token == end) {
                    Some((_, bias)) => *bias = -f32::MAX,
                    None => self.bias.push((end, -f32::MAX)),
                }
            }
        }
    }

    /// How to draw the token at `position`.
    pub(super) fn sampling(&self, position: usize) -> Sampling<'_> {
        let SamplingOptions { temperature, top_k, top_p, min_p, seed, .. } = self.sampling;
        let SamplingOptions { repeat_penalty, presence_penalty, frequency_penalty, .. } = self.sampling;
        Sampling {
            mask: None,
            bias: &self.bias,
            counts: &self.counts,
            repeat_penalty,
            presence_penalty,
            frequency_penalty,
            temperature,
            top_k,
            top_p,
            min_p,
            seed,
            position: position as u64,
        }
    }

    /// Takes a generated token, after which the context holds `room` more, and sends its piece. Returns whether the job
    /// goes on.
    pub(super) fn accept(&mut self, token: u32, tokenizer: Option<&Tokenizer>, room: usize) -> bool {
        match self.piece(token, tokenizer, room) {
            Ok(piece) => {
                let goes_on = piece.finish.is_none();
                self.events.send(Ok(piece)).is_ok() && goes_on
            }
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    fn piece(&mut self, token: u32, tokenizer: Option<&Tokenizer>, room: usize) -> Result<Piece, EngineError> {
        self.count(token);
        let is_end = !self.ignore_end && tokenizer.is_some_and(|t| t.is_end_of_generation(token));
        let new_text = match tokenizer {
            Some(tokenizer) if !is_end => self.decoder.push(tokenizer, token)?,
            _ => String::new(),
        };
        let length = self.usage.generated_tokens >= self.max_tokens || room == 0;
        let early = self.usage.generated_tokens < self.min_tokens;
        let scan = if early { Scan::Text(new_text) } else { self.stops.push(&new_text) };
        let (text, reason) = match scan {
            Scan::Stopped(text) => (text, Some(FinishReason::Stop)),
            Scan::Text(text) if is_end => (text + &self.rest(), Some(FinishReason::End)),
            Scan::Text(text) if length => (text + &self.rest(), Some(FinishReason::Length)),
            Scan::Text(text) => (text, None),
        };
        let usage = self.usage;
        Ok(Piece { text, token, finish: reason.map(|reason| Finish { reason, usage }) })
    }

    /// The text that was withheld: an incomplete character, or the start of a stop string.
    fn rest(&mut self) -> String {
        let tail = mem::replace(&mut self.decoder, StreamDecoder::new(true)).finish();
        match self.stops.push(&tail) {
            Scan::Stopped(text) => text,
            Scan::Text(text) => text + &self.stops.finish(),
        }
    }

    /// Counts a generated token, in usage and for penalties.
    fn count(&mut self, token: u32) {
        let now = Instant::now();
        let since = self.since.unwrap_or(now);
        match self.usage.generated_tokens {
            0 => {
                self.usage.prefill = now - since;
                self.since = Some(now);
            }
            _ => self.usage.decode = now - since,
        }
        self.usage.generated_tokens += 1;
        if self.sampling.penalises() {
            match self.counts.iter_mut().find(|(id, _)| *id == token) {
                Some((_, n)) => *n += 1,
                None => self.counts.push((token, 1)),
            }
        }
    }

    pub(super) fn fail(&self, error: EngineError) {
        // The receiver is gone if the generation was dropped.
        let _ = self.events.send(Err(error));
    }

    /// Tokens and times so far.
    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }
}

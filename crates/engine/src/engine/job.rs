//! One request, from its prompt to its last piece.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use gristmill_kernels::ops::Sampling;

use super::draft::Draft;
use super::dry::Repetition;
use super::grammar::Matcher;
use super::stop::{Scan, StopStrings};
use super::{EngineError, Event, Finish, FinishReason, Logprob, Piece, Request, SamplingOptions, Usage, seed};
use crate::tokenizer::{StreamDecoder, Tokenizer};

/// A token that was drawn for a job.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) token: u32,
    pub(super) logprob: Option<Logprob>,
}

/// Takes what happens to a request. Returns whether anybody wants more of it.
pub(super) struct Deliver(pub(super) Box<dyn FnMut(Event) -> bool + Send>);

impl fmt::Debug for Deliver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deliver")
    }
}

/// A place among the requests that an engine takes at a time; free again when dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes one of `places`, of which `taken` are taken.
    pub(super) fn take(taken: &Arc<AtomicUsize>, places: usize) -> Option<Place> {
        let more = |n: usize| (n < places).then_some(n + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place(taken.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request and its progress.
#[derive(Debug)]
pub(super) struct Job {
    /// What is to be computed, until the job enters a slot: the prompt, after a preemption with the tokens that were
    /// generated.
    pub(super) text: Vec<u32>,
    /// The number of jobs that began before.
    pub(super) began: Option<u64>,
    /// How often blocks had become free when there were too few for it last.
    pub(super) refused: Option<u64>,
    /// See [`Request::tenant`].
    pub(super) tenant: u64,
    sampling: SamplingOptions,
    seed: u64,
    /// See [`Request::logprobs`].
    pub(super) logprobs: Option<usize>,
    /// See [`Request::prompt_logprobs`].
    pub(super) prompt_logprobs: Option<usize>,
    /// Those of the prompt so far.
    of_prompt: Vec<Logprob>,
    /// See [`Piece::cache_miss`]; until the first piece.
    cache_miss: Option<String>,
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
    /// Of the request's grammar.
    matcher: Option<Matcher>,
    /// `None` if what is drawn depends on tokens that would be guesses.
    draft: Option<Draft>,
    /// Tokens generated so far and how often, if a penalty looks at them.
    counts: Vec<(u32, u32)>,
    usage: Usage,
    /// The request, then the start of the first step, then the first token.
    since: Instant,
    /// Until the last piece.
    place: Option<Place>,
    deliver: Deliver,
    cancelled: Arc<AtomicBool>,
}

impl Job {
    pub(super) fn new(
        mut request: Request,
        prompt: Vec<u32>,
        repetition: Option<Repetition>,
        matcher: Option<Matcher>,
        decoder: StreamDecoder,
        place: Place,
        deliver: Deliver,
        cancelled: Arc<AtomicBool>,
    ) -> Job {
        request.logit_bias.sort_unstable_by_key(|&(token, _)| token);
        let depends = repetition.is_some() || matcher.is_some() || request.sampling.penalises();
        Job {
            draft: (request.draft > 0 && !depends).then(|| Draft::new(request.draft)),
            usage: Usage { prompt_tokens: prompt.len(), ..Usage::default() },
            text: prompt,
            began: None,
            refused: None,
            tenant: request.tenant,
            sampling: request.sampling,
            seed: request.sampling.seed.unwrap_or_else(seed::draw),
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            of_prompt: Vec::new(),
            cache_miss: None,
            max_tokens: request.max_tokens.unwrap_or(usize::MAX),
            min_tokens: request.min_tokens,
            ignore_end: request.ignore_end,
            decoder,
            stops: StopStrings::new(&request.stop),
            bias: request.logit_bias.clone(),
            given_bias: request.logit_bias,
            repetition,
            matcher,
            counts: Vec::new(),
            since: Instant::now(),
            place: Some(place),
            deliver,
            cancelled,
        }
    }

    /// Whether the caller has cancelled the request.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// What of the text need not be computed if its state is there: its last token is, for its logits, and all of it for
    /// log-probabilities.
    pub(super) fn reusable(&self) -> &[u32] {
        let last = self.text.len().saturating_sub(1);
        if self.prompt_logprobs.is_some() { &[] } else { &self.text[..last] }
    }

    /// The tokens that the text may soon have: at most `more` than `length`.
    pub(super) fn soon(&self, length: usize, more: usize) -> usize {
        length + more.min(self.max_tokens.saturating_sub(self.usage.generated_tokens))
    }

    /// Waits again, until there are blocks for its text.
    pub(super) fn preempt(&mut self) {
        self.usage.preemptions += 1;
        self.of_prompt.clear();
        if self.usage.generated_tokens > 0 {
            // The first piece had them.
            self.prompt_logprobs = None;
        }
    }

    /// Enters a slot for the first time; of its sequence `reused` tokens are computed.
    pub(super) fn begin(&mut self, reused: usize, tokenizer: Option<&Tokenizer>) {
        const CHARACTERS: usize = 40;
        self.usage.reused_tokens = reused;
        if (1..self.reusable().len()).contains(&reused) {
            let rest = &self.text[reused..];
            let text = tokenizer.and_then(|t| t.decode(&rest[..rest.len().min(CHARACTERS)], false).ok());
            self.cache_miss = text.map(|text| text.chars().take(CHARACTERS).collect());
        }
        let now = Instant::now();
        self.usage.queue = now - self.since;
        self.since = now;
    }

    /// Computes the mask and the bias of the next token from the text so far, prompt included.
    ///
    /// # Errors
    /// Those of the grammar.
    pub(super) fn observe(&mut self, text: &[u32], tokenizer: Option<&Tokenizer>) -> Result<(), EngineError> {
        if let Some(matcher) = &mut self.matcher {
            matcher.allow(!self.ignore_end && self.usage.generated_tokens >= self.min_tokens)?;
        }
        self.update_bias(text, tokenizer);
        Ok(())
    }

    fn update_bias(&mut self, text: &[u32], tokenizer: Option<&Tokenizer>) {
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

    /// How many tokens to guess, of which the context holds `room` more behind the next.
    pub(super) fn guesses(&self, room: usize) -> usize {
        let Usage { generated_tokens, .. } = self.usage;
        let wanted = self.max_tokens.saturating_sub(generated_tokens + 1);
        match &self.draft {
            Some(draft) if generated_tokens >= self.min_tokens => draft.count().min(room).min(wanted),
            _ => 0,
        }
    }

    /// Counts a forward pass over so many requests, this one included.
    pub(super) fn count_step(&mut self, requests: usize) {
        self.usage.steps += 1;
        self.usage.step_requests += requests;
    }

    /// Counts guesses, and how many of them the model drew.
    pub(super) fn learn(&mut self, guessed: usize, right: usize) {
        self.usage.drafted_tokens += guessed;
        self.usage.accepted_tokens += right;
        self.draft.iter_mut().for_each(|draft| draft.learn(right));
    }

    /// How to draw the token at `position`, which a token of the prompt replaces if it is `given`.
    pub(super) fn sampling(&self, position: usize, given: bool) -> Sampling<'_> {
        let SamplingOptions { temperature, top_k, top_p, min_p, .. } = self.sampling;
        let SamplingOptions { repeat_penalty, presence_penalty, frequency_penalty, .. } = self.sampling;
        Sampling {
            mask: self.matcher.as_ref().filter(|_| !given).map(Matcher::mask),
            bias: &self.bias,
            counts: &self.counts,
            repeat_penalty,
            presence_penalty,
            frequency_penalty,
            temperature,
            top_k,
            top_p,
            min_p,
            seed: self.seed,
            position: position as u64,
        }
    }

    /// How to guess the token at `position`: what [`Self::sampling`] will be if the job guesses.
    pub(super) fn sampling_of_guess(&self, position: usize) -> Sampling<'_> {
        Sampling { bias: &self.given_bias, ..self.sampling(position, false) }
    }

    /// Takes a generated token, after which the context holds `room` more, and sends its piece. Returns whether the job
    /// goes on.
    pub(super) fn accept(&mut self, drawn: Drawn, tokenizer: Option<&Tokenizer>, room: usize) -> bool {
        match self.piece(drawn, tokenizer, room) {
            Ok(piece) => {
                let goes_on = piece.finish.is_none();
                self.place.take_if(|_| !goes_on);
                self.deliver.0(Ok(piece)) && goes_on
            }
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    fn piece(&mut self, drawn: Drawn, tokenizer: Option<&Tokenizer>, room: usize) -> Result<Piece, EngineError> {
        let Drawn { token, logprob } = drawn;
        self.count(token);
        let complete = self.matcher.as_mut().map(|matcher| matcher.accept(token)).transpose()?;
        // With a grammar, such a token is drawn only where the text ends.
        let ends = !self.ignore_end || complete.is_some();
        let is_end = ends && tokenizer.is_some_and(|t| t.is_end_of_generation(token));
        let new_text = match tokenizer {
            Some(tokenizer) if !is_end => self.decoder.push(tokenizer, token)?,
            _ => String::new(),
        };
        let length = self.usage.generated_tokens >= self.max_tokens || room == 0;
        let early = self.usage.generated_tokens < self.min_tokens;
        let scan = if early { Scan::Text(new_text) } else { self.stops.push(&new_text) };
        let (text, reason) = match scan {
            Scan::Stopped(text, stop) => (text, Some((FinishReason::Stop, Some(stop)))),
            Scan::Text(text) if is_end || complete == Some(true) => {
                (text + &self.rest(), Some((FinishReason::End, None)))
            }
            Scan::Text(text) if length => (text + &self.rest(), Some((FinishReason::Length, None))),
            Scan::Text(text) => (text, None),
        };
        let (seed, usage) = (self.seed, self.usage);
        let (prompt_logprobs, cache_miss) = (mem::take(&mut self.of_prompt), self.cache_miss.take());
        let finish = reason.map(|(reason, stop)| Finish { reason, stop, seed, usage });
        Ok(Piece { text, token, logprob, prompt_logprobs, cache_miss, finish })
    }

    /// The text that was withheld: an incomplete character, or the start of a stop string.
    fn rest(&mut self) -> String {
        let tail = mem::replace(&mut self.decoder, StreamDecoder::new(true)).finish();
        match self.stops.push(&tail) {
            Scan::Stopped(text, _) => text,
            Scan::Text(text) => text + &self.stops.finish(),
        }
    }

    /// Counts a generated token, in usage and for penalties.
    fn count(&mut self, token: u32) {
        let now = Instant::now();
        match self.usage.generated_tokens {
            0 => {
                self.usage.prefill = now - self.since;
                self.since = now;
            }
            _ => self.usage.decode = now - self.since,
        }
        self.usage.generated_tokens += 1;
        if self.sampling.penalises() {
            match self.counts.iter_mut().find(|(id, _)| *id == token) {
                Some((_, n)) => *n += 1,
                None => self.counts.push((token, 1)),
            }
        }
    }

    pub(super) fn fail(&mut self, error: EngineError) {
        self.place = None;
        // Nobody is there if the generation was dropped.
        self.deliver.0(Err(error));
    }

    /// Keeps what the model says of the next token of the prompt.
    pub(super) fn read(&mut self, logprob: Logprob) {
        self.of_prompt.push(logprob);
    }

    /// Tokens and times so far.
    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }
}

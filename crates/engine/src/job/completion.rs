//! The completion of a text, to its last piece.

use std::fmt;
use std::mem;

use gristmill_kernels::ops::{Sampling, SamplingOptions};
use gristmill_text::grammar::Matcher;
use gristmill_text::tokenizer::{StreamDecoder, Tokenizer};

use super::callback::call_back;
use super::{Permit, Progress};
use crate::draft::DraftSampling;
use crate::draft::acceptance::Acceptance;
use crate::draft::planner::Planner;
use crate::dry::Repetition;
use crate::output::Drafting;
use crate::output::Event;
use crate::reasoning::Reasoning;
use crate::script::Scripted;
use crate::stop::{Scan, StopStrings};
use crate::{EngineError, Finish, FinishReason, Logprob, Piece, Request, Usage, Wanted, seed};

/// A token that was sampled for a job.
#[derive(Debug)]
pub(crate) struct Sampled {
    pub(crate) token: u32,
    pub(crate) logprob: Option<Logprob>,
    /// See [`Piece::routing`].
    pub(crate) routing: Vec<Vec<(u32, f32)>>,
}

/// Takes what happens to a request. Returns what is wanted after it.
pub(crate) struct Sink(pub(crate) Box<dyn FnMut(Event) -> Wanted + Send>);

impl Sink {
    /// Hands an event to the caller. After a panic the caller wants no more.
    fn deliver(&mut self, event: Event) -> Wanted {
        call_back(|| (self.0)(event)).unwrap_or(Wanted::Nothing)
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}

/// How a text is completed, and how far that is.
#[derive(Debug)]
pub(crate) struct Completion {
    /// With the seed that the tokens are sampled with.
    sampling: SamplingOptions,
    /// See [`Request::logprobs`].
    pub(crate) logprobs: Option<usize>,
    /// See [`Request::prompt_logprobs`].
    pub(crate) prompt_logprobs: Option<usize>,
    /// See [`Request::routing`].
    pub(crate) traces: bool,
    /// Log-probabilities of the prompt so far.
    of_prompt: Vec<Logprob>,
    /// See [`Piece::cache_miss`]; until the first piece.
    cache_miss: Option<String>,
    max_tokens: usize,
    /// See [`Request::min_tokens`].
    min_tokens: usize,
    ignore_end: bool,
    /// See [`Request::stop_tokens`].
    stop_tokens: Vec<u32>,
    /// See [`Request::keeps_stop`].
    keeps_stop: bool,
    /// Tokens in the vocabulary.
    vocabulary: usize,
    /// The mask of [`Request::allowed_tokens`].
    allowed: Option<Vec<u32>>,
    /// The mask of the next token where neither `allowed` nor the grammar alone has it, as of the last
    /// [`Self::observe`].
    mask: Option<Vec<u32>>,
    /// See [`Request::banned_sequences`]; those of one token are in `request_bias`.
    banned: Vec<Vec<u32>>,
    /// See [`Request::reasoning`].
    reasoning: Option<Reasoning>,
    decoder: StreamDecoder,
    stops: StopStrings,
    /// The bias of the request, in ascending order of the tokens.
    request_bias: Vec<(u32, f32)>,
    /// `request_bias`, DRY's penalties and what keeps the text from ending, as of the last [`Self::observe`].
    bias: Vec<(u32, f32)>,
    repetition: Option<Repetition>,
    /// The state in the request's grammar.
    matcher: Option<Matcher>,
    /// What the text must be, if a script says so.
    scripted: Option<Scripted>,
    /// The most draft tokens of a step.
    draft: usize,
    /// What sampling depends on, if that keeps the request from having draft tokens.
    undrafted: Option<&'static str>,
    acceptance: Acceptance,
    /// Tokens generated so far and how often, if a penalty looks at them.
    counts: Vec<(u32, u32)>,
    /// The next token ends the text, because the caller wants only one more.
    is_last: bool,
    /// Until the last piece.
    permit: Option<Permit>,
    sink: Sink,
}

impl Completion {
    pub(crate) fn new(
        mut request: Request,
        vocabulary: usize,
        repetition: Option<Repetition>,
        matcher: Option<Matcher>,
        decoder: StreamDecoder,
        permit: Permit,
        sink: Sink,
    ) -> Completion {
        let (single, banned): (Vec<_>, Vec<_>) = request
            .banned_sequences
            .into_iter()
            .filter(|banned| !banned.is_empty())
            .partition(|banned| banned.len() == 1);
        ban(&mut request.logit_bias, single.into_iter().flatten());
        request.logit_bias.sort_unstable_by_key(|&(token, _)| token);
        let dependences =
            [(matcher.is_some(), "a grammar"), (repetition.is_some(), "DRY"), (!banned.is_empty(), "banned sequences")];
        let undrafted = dependences.into_iter().find_map(|(depends, on)| depends.then_some(on));
        let seed = request.sampling.seed.unwrap_or_else(seed::draw);
        Completion {
            draft: request.draft,
            undrafted,
            acceptance: Acceptance::default(),
            sampling: SamplingOptions { seed: Some(seed), ..request.sampling },
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            traces: request.routing,
            of_prompt: Vec::new(),
            cache_miss: None,
            max_tokens: request.max_tokens.unwrap_or(usize::MAX),
            min_tokens: request.min_tokens,
            ignore_end: request.ignore_end,
            stop_tokens: request.stop_tokens,
            keeps_stop: request.keeps_stop,
            vocabulary,
            allowed: request.allowed_tokens.map(|tokens| mask_of(&tokens, vocabulary)),
            mask: None,
            banned,
            reasoning: request.reasoning.map(Reasoning::new),
            decoder,
            stops: StopStrings::new(&request.stop),
            bias: request.logit_bias.clone(),
            request_bias: request.logit_bias,
            repetition,
            matcher,
            scripted: None,
            counts: Vec::new(),
            is_last: false,
            permit: Some(permit),
            sink,
        }
    }

    /// Lets the text be what a script says. It has no draft tokens then, which the model would choose.
    pub(crate) fn follow(&mut self, scripted: Option<Scripted>) {
        if scripted.is_some() {
            self.undrafted = Some("a script");
        }
        self.scripted = scripted;
    }

    /// Tokens that may still be generated.
    pub(crate) fn left(&self, progress: &Progress) -> usize {
        self.max_tokens.saturating_sub(progress.usage.generated_tokens)
    }

    /// Waits again with the text so far.
    pub(super) fn preempt(&mut self, progress: &Progress) {
        self.of_prompt.clear();
        if progress.usage.generated_tokens > 0 {
            // The first piece had them.
            self.prompt_logprobs = None;
        }
    }

    /// The prefix cache lacks this rest of the prompt, and has what is before it.
    pub(super) fn miss(&mut self, rest: &[u32], tokenizer: Option<&Tokenizer>) {
        const CHARACTERS: usize = 40;
        let text = tokenizer.and_then(|t| t.decode(&rest[..rest.len().min(CHARACTERS)], false).ok());
        self.cache_miss = text.map(|text| text.chars().take(CHARACTERS).collect());
    }

    /// Computes the mask and the bias of the next token from the text so far, prompt included.
    ///
    /// # Errors
    /// The errors of the grammar.
    pub(crate) fn observe(
        &mut self,
        progress: &Progress,
        text: &[u32],
        tokenizer: Option<&Tokenizer>,
    ) -> Result<(), EngineError> {
        let generated = progress.usage.generated_tokens;
        if let Some(matcher) = &mut self.matcher {
            matcher.allow(!self.ignore_end && generated >= self.min_tokens)?;
        }
        self.update_mask()?;
        self.update_bias(generated, text, tokenizer);
        Ok(())
    }

    fn update_mask(&mut self) -> Result<(), EngineError> {
        let forced = self.reasoning.as_ref().and_then(Reasoning::forced);
        self.mask = match (forced, &self.allowed, &self.matcher) {
            (Some(token), _, None) => Some(mask_of(&[token], self.vocabulary)),
            (_, Some(allowed), Some(matcher)) => {
                let both: Vec<u32> = allowed.iter().zip(matcher.mask()).map(|(a, b)| a & b).collect();
                if both.iter().all(|&word| word == 0) {
                    return Err(EngineError::GrammarStuck);
                }
                Some(both)
            }
            _ => None,
        };
        Ok(())
    }

    fn update_bias(&mut self, generated: usize, text: &[u32], tokenizer: Option<&Tokenizer>) {
        if self.repetition.is_none() && self.min_tokens == 0 && self.banned.is_empty() {
            return;
        }
        self.bias.clone_from(&self.request_bias);
        let penalties = self.repetition.iter_mut().flat_map(|repetition| repetition.penalties(text, tokenizer));
        let lower = |(token, penalty): (u32, f32)| match self.request_bias.binary_search_by_key(&token, |&(id, _)| id) {
            // Finite numbers may have a sum that is not.
            Ok(index) => self.bias[index].1 = (self.bias[index].1 - penalty).max(-f32::MAX),
            Err(_) => self.bias.push((token, -penalty)),
        };
        penalties.for_each(lower);
        if generated < self.min_tokens {
            let ends = tokenizer.map_or(&[][..], Tokenizer::end_of_generation).iter().chain(&self.stop_tokens);
            ban(&mut self.bias, ends.copied());
        }
        let generated = &text[text.len().saturating_sub(generated)..];
        let banned = self.banned.iter().filter_map(|sequence| sequence.split_last());
        ban(&mut self.bias, banned.filter(|(_, before)| generated.ends_with(before)).map(|(&last, _)| last));
    }

    /// Whether the next tokens are sampled without the host: each depends on the previous one only through the model,
    /// and the request needs only the token.
    pub(crate) fn can_overlap(&self, progress: &Progress) -> bool {
        let follows = !self.banned.is_empty() || self.free() < 2;
        let depends = self.repetition.is_some() || self.matcher.is_some() || self.scripted.is_some();
        let depends = depends || self.sampling.penalises() || follows;
        let tells = self.logprobs.is_some() || self.prompt_logprobs.is_some() || self.traces;
        !depends && !tells && progress.usage.generated_tokens >= self.min_tokens
    }

    /// At least this number of tokens are sampled before the end of reasoning is forced.
    fn free(&self) -> usize {
        self.reasoning.as_ref().map_or(usize::MAX, Reasoning::free)
    }

    /// How many draft tokens to make, of which the context holds `room` more behind the next.
    pub(super) fn draft_tokens(&self, progress: &Progress, room: usize) -> usize {
        let wanted = self.left(progress).saturating_sub(1);
        if self.undrafted.is_some() || progress.usage.generated_tokens < self.min_tokens {
            return 0;
        }
        self.draft.min(room).min(wanted).min(self.free().saturating_sub(1))
    }

    /// How often its draft tokens were accepted.
    pub(crate) fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    /// Counts a draft, and how many of its tokens the model accepted.
    pub(crate) fn count_draft(
        &mut self,
        progress: &mut Progress,
        planner: &mut Planner,
        drafted: usize,
        accepted: usize,
    ) {
        progress.usage.count_draft(drafted, accepted);
        planner.count(&mut self.acceptance, drafted, accepted);
    }

    /// How the engine drafts for the request, if it asks for draft tokens.
    pub(crate) fn drafting(&self, source: Drafting) -> Option<Drafting> {
        (self.draft > 0).then(|| self.undrafted.map_or(source, Drafting::Off))
    }

    /// How to sample the token at `position`, which a token of the prompt replaces if it `is_prompt`.
    pub(crate) fn sampling(&self, position: usize, is_prompt: bool) -> Sampling<'_> {
        let scripted = self.scripted.as_ref().filter(|_| !is_prompt).and_then(Scripted::bias);
        Sampling {
            mask: if is_prompt { None } else { self.mask() },
            bias: scripted.unwrap_or(&self.bias),
            counts: &self.counts,
            options: self.sampling,
            position: position as u64,
        }
    }

    /// The tokens that may be sampled.
    fn mask(&self) -> Option<&[u32]> {
        let of_grammar = || self.matcher.as_ref().map(Matcher::mask);
        self.mask.as_deref().or_else(of_grammar).or(self.allowed.as_deref())
    }

    /// Takes a generated token, after which the context holds `room` more, and sends its piece. Returns whether the
    /// text continues.
    pub(crate) fn accept(
        &mut self,
        progress: &mut Progress,
        sampled: Sampled,
        tokenizer: Option<&Tokenizer>,
        room: usize,
    ) -> bool {
        match self.piece(progress, sampled, tokenizer, room) {
            Ok(piece) => {
                let goes_on = piece.finish.is_none();
                self.permit.take_if(|_| !goes_on);
                let wanted = self.sink.deliver(Ok(piece));
                self.is_last = wanted == Wanted::Last;
                wanted != Wanted::Nothing && goes_on
            }
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    fn piece(
        &mut self,
        progress: &mut Progress,
        sampled: Sampled,
        tokenizer: Option<&Tokenizer>,
        room: usize,
    ) -> Result<Piece, EngineError> {
        let Sampled { token, logprob, routing } = sampled;
        self.scripted.as_mut().map_or(Ok(()), |scripted| scripted.accept(token))?;
        progress.count_token();
        self.count(token);
        let complete = self.matcher.as_mut().map(|matcher| matcher.accept(token)).transpose()?;
        // With a grammar, such a token is sampled only where the text ends.
        let ends = !self.ignore_end || complete.is_some();
        let is_end = ends && tokenizer.is_some_and(|t| t.is_end_of_generation(token));
        let is_stop = !is_end && self.stop_tokens.contains(&token);
        let new_text = match tokenizer {
            Some(tokenizer) if !is_end && (!is_stop || self.keeps_stop) => self.decoder.push(tokenizer, token)?,
            _ => String::new(),
        };
        self.reasoning.iter_mut().for_each(|reasoning| reasoning.push(&new_text));
        let Usage { generated_tokens: generated, .. } = progress.usage;
        let length = generated >= self.max_tokens || room == 0;
        let early = generated < self.min_tokens;
        let scan = if early { Scan::Text(new_text) } else { self.stops.push(&new_text) };
        let (text, reason) = match scan {
            Scan::Stopped(text, stop) => {
                let kept = if self.keeps_stop { self.stops.text(stop) } else { "" };
                (text + kept, Some((FinishReason::Stop, Some(stop))))
            }
            Scan::Text(text) if is_stop || (self.is_last && !is_end) => {
                (text + &self.rest(), Some((FinishReason::Stop, None)))
            }
            Scan::Text(text) if is_end || complete == Some(true) => {
                (text + &self.rest(), Some((FinishReason::End, None)))
            }
            Scan::Text(text) if length => (text + &self.rest(), Some((FinishReason::Length, None))),
            Scan::Text(text) => (text, None),
        };
        let seed = self.sampling.seed.unwrap_or(0);
        let usage = progress.usage;
        let prompt_logprobs = mem::take(&mut self.of_prompt);
        let cache_miss = self.cache_miss.take();
        let finish = reason.map(|(reason, stop)| Finish { reason, stop, seed, usage });
        Ok(Piece { text, token, logprob, routing, prompt_logprobs, cache_miss, finish })
    }

    /// The text that was withheld: an incomplete character, or the start of a stop string.
    fn rest(&mut self) -> String {
        let tail = mem::replace(&mut self.decoder, StreamDecoder::new(true)).finish();
        match self.stops.push(&tail) {
            Scan::Stopped(text, _) => text,
            Scan::Text(text) => text + &self.stops.finish(),
        }
    }

    /// Counts a generated token for penalties.
    fn count(&mut self, token: u32) {
        if self.sampling.penalises() {
            count_token(&mut self.counts, token);
        }
    }

    /// The tokens that penalties look at where these draft tokens follow the text; `None` if they are those of the text.
    pub(crate) fn counts_after(&self, draft: &[u32]) -> Option<Vec<(u32, u32)>> {
        (self.sampling.penalises() && !draft.is_empty()).then(|| {
            let mut counts = self.counts.clone();
            draft.iter().for_each(|&token| count_token(&mut counts, token));
            counts
        })
    }

    /// Ends the request with an error.
    pub(super) fn fail(&mut self, error: EngineError) {
        self.permit = None;
        // Nobody is there if the generation was dropped.
        self.sink.deliver(Err(error));
    }

    /// Keeps what the model says of the next token of the prompt.
    pub(crate) fn read(&mut self, logprob: Logprob) {
        self.of_prompt.push(logprob);
    }
}

impl DraftSampling for Completion {
    /// How to sample the draft token at `position`: as [`Self::sampling`] will be.
    fn sampling_of_draft(&self, position: usize) -> Sampling<'_> {
        Sampling { bias: &self.request_bias, ..self.sampling(position, false) }
    }
}

fn count_token(counts: &mut Vec<(u32, u32)>, token: u32) {
    match counts.iter_mut().find(|(id, _)| *id == token) {
        Some((_, n)) => *n += 1,
        None => counts.push((token, 1)),
    }
}

/// Keeps tokens from being sampled.
fn ban(bias: &mut Vec<(u32, f32)>, tokens: impl Iterator<Item = u32>) {
    for token in tokens {
        match bias.iter_mut().find(|(known, _)| *known == token) {
            Some((_, bias)) => *bias = -f32::MAX,
            None => bias.push((token, -f32::MAX)),
        }
    }
}

/// The mask of these tokens: bit `i % 32` of word `i / 32` is that of token `i`.
fn mask_of(tokens: &[u32], vocabulary: usize) -> Vec<u32> {
    let mut mask = vec![0; vocabulary.div_ceil(32)];
    tokens.iter().for_each(|&token| mask[token as usize / 32] |= 1 << (token % 32));
    mask
}

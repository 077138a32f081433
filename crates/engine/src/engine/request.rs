//! Requests to an engine, and their results.

use std::collections::HashSet;
use std::time::Duration;

use gristmill_text::tokenizer::EncodeOptions;
use serde::{Deserialize, Serialize};

use super::draft::acceptance::PLACES;
use super::options::{GenerationOptions, Required};
use super::{Drafting, Dry, EngineError, Grammar, Logprob, ReasoningLimit, SamplingOptions, check_sampling};

/// A text to be continued. [`Engine::request`](super::Engine::request) builds one of a prompt, and
/// [`Conversation::request`](super::Conversation::request) one of a conversation. Write
/// `Request { …, ..Request::new(prompt) }`: later versions may add fields.
///
/// All of it but the tenant and the key of the cache can be kept as JSON in a [`Receipt`](super::receipt::Receipt).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The prompt.
    pub prompt: Prompt,
    /// How tokens are sampled.
    #[serde(with = "super::sampling")]
    pub sampling: SamplingOptions,
    /// Added to the logits of these tokens before everything else; each token once.
    pub logit_bias: Vec<(u32, f32)>,
    /// A penalty on tokens that would continue a repetition; off by default.
    pub dry: Dry,
    /// The most tokens to generate. `None`: until the context is full.
    pub max_tokens: Option<usize>,
    /// The text does not end before it has this many tokens: end-of-generation tokens are not sampled, and stop strings
    /// are looked for in what follows. At most `max_tokens`.
    pub min_tokens: usize,
    /// The text ends before the first of these; they are not part of it. They may lie across token boundaries.
    pub stop: Vec<String>,
    /// The text ends before the first of these tokens. They are sampled as others are, but not before `min_tokens`.
    pub stop_tokens: Vec<u32>,
    /// The stop string or the stop token that ends the text is a part of it.
    pub keeps_stop: bool,
    /// No other tokens are sampled, end-of-generation tokens included. `None` allows all.
    pub allowed_tokens: Option<Vec<u32>>,
    /// Sequences of tokens that the text does not have: the last token of one is not sampled behind the others.
    pub banned_sequences: Vec<Vec<u32>>,
    /// A limit on the tokens of reasoning. A text that follows a grammar has none.
    pub reasoning: Option<ReasoningLimit>,
    /// Do not end at end-of-generation tokens (for measurements).
    pub ignore_end: bool,
    /// The grammar of the completion, from its first token on: a model that thinks first cannot follow it. Bias,
    /// penalties and all that follows choose among the tokens that the grammar allows; log-probabilities are those of
    /// the model. A text that a limit cuts is the start of one that the grammar allows.
    pub grammar: Option<Grammar>,
    /// Number of alternatives returned with the log-probability of each generated token ([`Piece::logprob`]).
    pub logprobs: Option<usize>,
    /// The same for each token of the prompt but the first ([`Piece::prompt_logprobs`]). Such a prompt is computed as a
    /// whole, and in batches of no more tokens than [`Limits::output_rows`](crate::Limits::output_rows). They are held
    /// until the first piece, in 8 bytes for each of the most likely.
    pub prompt_logprobs: Option<usize>,
    /// Return the experts that computed each generated token ([`Piece::routing`]). The text is the same either way, so
    /// a receipt does not have it.
    #[serde(skip)]
    pub routing: bool,
    /// The maximum number of draft tokens in each step; 0 turns them off. They come from the engine's [`DraftSource`](super::DraftSource).
    /// The model checks the draft tokens in one pass and accepts the tokens that it samples itself. So the text is the
    /// same, and predictable texts take fewer steps. From the acceptance and from the times of steps so far, the engine
    /// decides how many draft tokens, or none, a step has. Needs rows of logits:
    /// [`Limits::output_rows`](crate::Limits::output_rows) for one more than the draft tokens of each sequence. There
    /// are no draft tokens with DRY, a grammar or banned sequences of several tokens, near the limit of reasoning, and
    /// below `min_tokens`.
    pub draft: usize,
    /// What the request computes is reused only by requests with this key. `None`: by those of the tenant without one.
    #[serde(skip)]
    pub cache_key: Option<u64>,
    /// Generated control tokens are a part of the text: some models separate the channels of a completion by them.
    pub control_tokens: bool,
    /// The tenant of the request. The next request to start is one of the tenant with the fewest tokens so far. A token
    /// that is computed again after a preemption does not count again. Cached prefixes are reused only by requests of
    /// the same tenant, so the time of a prompt reveals nothing about other tenants' prompts.
    #[serde(skip)]
    pub tenant: u64,
}

impl Request {
    /// A request with the default sampling of gristmill, whatever the model recommends, no stop strings and no bound but the
    /// context.
    pub fn new(prompt: impl Into<Prompt>) -> Request {
        Required::text(prompt.into(), SamplingOptions::default()).request(GenerationOptions::default())
    }

    /// Checks everything but the prompt: ranges, and tokens against the size of the vocabulary.
    pub(super) fn check(&self, vocabulary: usize) -> Result<(), EngineError> {
        check_sampling(&self.sampling)?;
        self.dry.check()?;
        if self.max_tokens == Some(0) {
            return Err(EngineError::NoTokens);
        }
        if let Some(max) = self.max_tokens.filter(|&max| max < self.min_tokens) {
            return Err(EngineError::MinTokens { min: self.min_tokens, max });
        }
        if let Some(asked) = self.logprobs.max(self.prompt_logprobs).filter(|&asked| asked > vocabulary) {
            return Err(EngineError::Logprobs { asked, vocabulary });
        }
        self.check_tokens(vocabulary)?;
        let mut seen = HashSet::new();
        for &(token, bias) in &self.logit_bias {
            if token as usize >= vocabulary {
                return Err(EngineError::LogitBiasToken { token, vocabulary });
            }
            if !bias.is_finite() {
                return Err(EngineError::LogitBias { token, bias });
            }
            if !seen.insert(token) {
                return Err(EngineError::LogitBiasTwice(token));
            }
        }
        Ok(())
    }

    /// Checks the tokens that the request names outside of its prompt and its biases.
    fn check_tokens(&self, vocabulary: usize) -> Result<(), EngineError> {
        if self.allowed_tokens.as_ref().is_some_and(Vec::is_empty) {
            return Err(EngineError::NoAllowedTokens);
        }
        let ending = self.reasoning.as_ref().map(|limit| &limit.ending);
        let named = [
            (TokenList::Stop, Some(&self.stop_tokens)),
            (TokenList::Allowed, self.allowed_tokens.as_ref()),
            (TokenList::Reasoning, ending),
        ];
        let banned = self.banned_sequences.iter().map(|sequence| (TokenList::Banned, Some(sequence)));
        for (list, tokens) in named.into_iter().chain(banned) {
            if let Some(&token) = tokens.into_iter().flatten().find(|&&token| token as usize >= vocabulary) {
                return Err(EngineError::NamedToken { list, token, vocabulary });
            }
        }
        Ok(())
    }
}

/// A list of tokens in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenList {
    /// [`Request::stop_tokens`].
    Stop,
    /// [`Request::allowed_tokens`].
    Allowed,
    /// [`Request::banned_sequences`].
    Banned,
    /// [`ReasoningLimit::ending`] of [`Request::reasoning`].
    Reasoning,
}

/// The input of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Prompt {
    /// Token ids, used without changes.
    Tokens(Vec<u32>),
    /// A text to be continued.
    Text {
        /// The text.
        text: String,
        /// Whether the tokens that the model wants around a text (such as BOS) are added, and whether control tokens
        /// written in it are control tokens: both for [`Prompt::from`] a text.
        options: EncodeOptions,
    },
    /// The prompt of a conversation, as [`Engine::converse`](super::Engine::converse) renders it: control tokens of the
    /// template are parsed, texts of the conversation are text, and no tokens are added.
    Rendered {
        /// The text.
        text: String,
        /// The bytes, in ascending order, that no control token includes: those with which a control token would start
        /// in what the conversation says.
        plain: Vec<usize>,
        /// Whether the text ends with the start of the reply. Then generated tokens continue a text, so that a space
        /// before the first word is kept.
        is_started: bool,
    },
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Prompt {
        Prompt::Tokens(tokens)
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Prompt {
        Prompt::Text { text, options: EncodeOptions::RAW }
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Prompt {
        Prompt::from(text.to_owned())
    }
}

/// The text that one token added.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Piece {
    /// Whole characters. Empty while a character or a possible stop string is not complete.
    pub text: String,
    /// The token, an end-of-generation token included.
    pub token: u32,
    /// If the client requests it.
    pub logprob: Option<Logprob>,
    /// If the client requests it: for each layer, the experts that the router chose, with their weights, in the pass
    /// from whose logits the token was sampled. That pass read the token before. Empty for a layer without experts.
    pub routing: Vec<Vec<(u32, f32)>>,
    /// Only in the first piece, if the client requests it: of each token of the prompt but the first.
    pub prompt_logprobs: Vec<Logprob>,
    /// Only in the first piece, if a prefix of the prompt was cached and a longer one could have been: at most 40
    /// characters of the prompt's text after the prefix. There the prompt differs from earlier sequences, or their
    /// later blocks were evicted.
    pub cache_miss: Option<String>,
    /// Only in the last piece.
    pub finish: Option<Finish>,
}

/// How a generation ended.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// The index in [`Request::stop`] of the string that ended the text, for [`FinishReason::Stop`]; `None` after a
    /// stop token.
    pub stop: Option<usize>,
    /// The seed of its tokens.
    pub seed: u64,
    /// Tokens and times.
    pub usage: Usage,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The model ended its text (an end-of-generation token), or the grammar is complete and allows nothing more.
    End,
    /// A stop string was completed, or a stop token was sampled.
    Stop,
    /// `max_tokens` were generated, or the context is full.
    Length,
}

impl FinishReason {
    /// `end`, `stop` or `length`.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::End => "end",
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
        }
    }
}

/// Tokens and times of one generation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt whose state was still there from an earlier request.
    pub reused_tokens: usize,
    /// From the request to the first step that read its prompt.
    pub queue: Duration,
    /// From the first step that read the prompt to the first token.
    pub prefill: Duration,
    /// Tokens generated, an end-of-generation token included.
    pub generated_tokens: usize,
    /// From the first token to the last.
    pub decode: Duration,
    /// How draft tokens were made, if the request asked for them ([`Request::draft`]).
    pub drafting: Option<Drafting>,
    /// Drafts: steps with draft tokens.
    pub drafts: usize,
    /// Draft tokens.
    pub drafted_tokens: usize,
    /// Draft tokens that the model sampled itself.
    pub accepted_tokens: usize,
    /// The same by their place in a draft, the first first. Places after the eighth are not counted here.
    pub draft_places: [DraftPlace; PLACES],
    /// Forward passes that the request was a part of.
    pub steps: usize,
    /// The sum of the numbers of requests in these passes.
    pub step_requests: usize,
    /// How often the request was interrupted because the KV cache was full
    /// ([`Limits::kv_tokens`](crate::Limits::kv_tokens)), or for another tenant: its text was computed again later, as far
    /// as it was not kept. `prefill` and `decode` include these times.
    pub preemptions: usize,
}

/// Draft tokens at one place of drafts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DraftPlace {
    /// Draft tokens.
    pub drafted: usize,
    /// Those that the model sampled itself, as all before them in their drafts.
    pub accepted: usize,
}

impl Usage {
    /// Counts a draft.
    pub(super) fn count_draft(&mut self, drafted: usize, accepted: usize) {
        self.drafts += 1;
        self.drafted_tokens += drafted;
        self.accepted_tokens += accepted;
        self.draft_places.iter_mut().take(drafted).for_each(|place| place.drafted += 1);
        self.draft_places.iter_mut().take(accepted).for_each(|place| place.accepted += 1);
    }

    /// Adds the drafts of another request.
    pub fn add_drafts(&mut self, other: &Usage) {
        self.drafts += other.drafts;
        self.drafted_tokens += other.drafted_tokens;
        self.accepted_tokens += other.accepted_tokens;
        for (place, other) in self.draft_places.iter_mut().zip(&other.draft_places) {
            place.drafted += other.drafted;
            place.accepted += other.accepted;
        }
    }

    /// The share of draft tokens that were accepted; `None` without any.
    pub fn acceptance(&self) -> Option<f64> {
        (self.drafted_tokens > 0).then(|| self.accepted_tokens as f64 / self.drafted_tokens as f64)
    }

    /// The same for each place that had any.
    pub fn acceptance_by_place(&self) -> impl Iterator<Item = f64> {
        let drafted = self.draft_places.into_iter().take_while(|place| place.drafted > 0);
        drafted.map(|place| place.accepted as f64 / place.drafted as f64)
    }

    /// Prompt tokens read per second; those reused do not count. `None` if the time is too short to tell.
    pub fn prefill_rate(&self) -> Option<f64> {
        rate(self.prompt_tokens - self.reused_tokens.min(self.prompt_tokens), self.prefill)
    }

    /// Requests in a forward pass, this one included, in the mean. `None` without a pass.
    pub fn mean_batch(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.step_requests as f64 / self.steps as f64)
    }

    /// Tokens generated per second after the first, which ends the prefill. `None` with fewer than two tokens.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.generated_tokens.saturating_sub(1), self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

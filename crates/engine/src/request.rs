//! Requests to an engine.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::options::{GenerationOptions, Required};
use crate::{Dry, EngineError, Grammar, Pictures, Prompt, ReasoningLimit, SamplingOptions, TokenList, check_sampling};

/// A text to be continued. [`Engine::request`](crate::Engine::request) builds one of a prompt, and
/// [`Conversation::request`](crate::Conversation::request) one of a conversation. Write
/// `Request { …, ..Request::new(prompt) }`: later versions may add fields.
///
/// All of it but the tenant and the key of the cache can be kept as JSON in a [`Receipt`](crate::receipt::Receipt).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The prompt.
    pub prompt: Prompt,
    /// Its pictures, whose places are counted in the tokens of the prompt.
    #[serde(default, skip_serializing_if = "Pictures::is_empty")]
    pub pictures: Pictures,
    /// How tokens are sampled.
    #[serde(with = "crate::sampling")]
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
    /// Number of alternatives returned with the log-probability of each generated token ([`Piece::logprob`](crate::Piece::logprob)).
    pub logprobs: Option<usize>,
    /// The same for each token of the prompt but the first ([`Piece::prompt_logprobs`](crate::Piece::prompt_logprobs)). Such a prompt is computed as a
    /// whole, and in batches of no more tokens than [`Limits::output_rows`](crate::Limits::output_rows). They are held
    /// until the first piece, in 8 bytes for each of the most likely.
    pub prompt_logprobs: Option<usize>,
    /// Return the experts that computed each generated token ([`Piece::routing`](crate::Piece::routing)). The text is the same either way, so
    /// a receipt does not have it.
    #[serde(skip)]
    pub routing: bool,
    /// The maximum number of draft tokens in each step; 0 turns them off. They come from the engine's [`DraftSource`](crate::DraftSource).
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
    pub(crate) fn check(&self, vocabulary: usize) -> Result<(), EngineError> {
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

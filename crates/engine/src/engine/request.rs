//! Requests to an engine, and their results.

use std::collections::HashSet;
use std::time::Duration;

use super::{Dry, EngineError};
use crate::template::Message;

/// A text to be continued or a conversation to be answered. Write `Request { …, ..Request::new(prompt) }`: later
/// versions may add fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The prompt.
    pub prompt: Prompt,
    /// How tokens are drawn.
    pub sampling: SamplingOptions,
    /// Added to the logits of these tokens before everything else; each token once.
    pub logit_bias: Vec<(u32, f32)>,
    /// A penalty on tokens that would continue a repetition; off by default.
    pub dry: Dry,
    /// The most tokens to generate. `None`: until the context is full.
    pub max_tokens: Option<usize>,
    /// The text does not end before it has this many tokens: end-of-generation tokens are not drawn, and stop strings are
    /// looked for in what follows. At most `max_tokens`.
    pub min_tokens: usize,
    /// The text ends before the first of these; they are not part of it. They may lie across token boundaries.
    pub stop: Vec<String>,
    /// Do not end at end-of-generation tokens (for measurements).
    pub ignore_end: bool,
    /// Generated control tokens are a part of the text: some models separate the channels of a completion by them.
    pub control_tokens: bool,
    /// Whose request it is. Of waiting requests, one of the tenant that was given the fewest tokens begins next. What a
    /// request has computed is reused only by requests of the same tenant, so the time that a prompt takes tells nothing
    /// about the prompts of others.
    pub tenant: u64,
}

impl Request {
    /// A request with default sampling, no stop strings and no bound but the context.
    pub fn new(prompt: impl Into<Prompt>) -> Request {
        Request {
            prompt: prompt.into(),
            sampling: SamplingOptions::default(),
            logit_bias: Vec::new(),
            dry: Dry::default(),
            max_tokens: None,
            min_tokens: 0,
            stop: Vec::new(),
            ignore_end: false,
            control_tokens: false,
            tenant: 0,
        }
    }

    /// Checks everything but the prompt: ranges, and tokens against the size of the vocabulary.
    pub(super) fn check(&self, vocabulary: usize) -> Result<(), EngineError> {
        self.sampling.check()?;
        self.dry.check()?;
        if self.max_tokens == Some(0) {
            return Err(EngineError::NoTokens);
        }
        if let Some(max) = self.max_tokens.filter(|&max| max < self.min_tokens) {
            return Err(EngineError::MinTokens { min: self.min_tokens, max });
        }
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
}

/// The input of a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Prompt {
    /// Token ids, taken as they are: nothing is added.
    Tokens(Vec<u32>),
    /// A text to be continued. The tokens that the model wants around a text (such as BOS) are added; control tokens
    /// written in it are plain text.
    Text(String),
    /// A conversation to be answered, through the model's chat template.
    Chat(Chat),
}

/// A conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chat {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// Whether a model that can think shall do so; left to the template if `None`.
    pub thinking: Option<bool>,
    /// Other variables of the template, such as `tools`.
    pub variables: serde_json::Map<String, serde_json::Value>,
}

impl Chat {
    /// A conversation without options.
    pub fn new(messages: Vec<Message>) -> Chat {
        Chat { messages, ..Chat::default() }
    }
}

impl From<Chat> for Prompt {
    fn from(chat: Chat) -> Prompt {
        Prompt::Chat(chat)
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Prompt {
        Prompt::Tokens(tokens)
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Prompt {
        Prompt::Text(text)
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Prompt {
        Prompt::Text(text.to_owned())
    }
}

/// How tokens are drawn, in the order: logit bias and DRY (see [`Request`]), penalties, temperature, top-k, top-p,
/// min-p. See [`Sampling`](gristmill_kernels::ops::Sampling) for the exact rules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 always takes the most likely token.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of tokens with at least this much probability, in (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the most likely, in [0, 1]; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that were generated before; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Subtracted once from the logits of tokens that were generated before.
    pub presence_penalty: f32,
    /// Subtracted for each time that a token was generated before.
    pub frequency_penalty: f32,
    /// The same seed, prompt and options give the same text.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        SamplingOptions {
            temperature: 0.7,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
        }
    }
}

impl SamplingOptions {
    /// Always the most likely token.
    pub fn greedy() -> SamplingOptions {
        SamplingOptions { temperature: 0.0, ..SamplingOptions::default() }
    }

    /// Whether any penalty looks at the text so far.
    pub(super) fn penalises(&self) -> bool {
        self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Checks the range of every option.
    ///
    /// # Errors
    /// [`EngineError::Sampling`] names the first that is out of range. NaN is out of every range.
    pub fn check(&self) -> Result<(), EngineError> {
        let largest = f32::MAX;
        let rules = [
            ("temperature", self.temperature, 0.0..=largest, "0 or greater"),
            ("top-p", self.top_p, f32::MIN_POSITIVE..=1.0, "greater than 0 and at most 1"),
            ("min-p", self.min_p, 0.0..=1.0, "between 0 and 1"),
            ("repeat penalty", self.repeat_penalty, f32::MIN_POSITIVE..=largest, "greater than 0; 1 turns it off"),
            ("presence penalty", self.presence_penalty, -largest..=largest, "a finite number; 0 turns it off"),
            ("frequency penalty", self.frequency_penalty, -largest..=largest, "a finite number; 0 turns it off"),
        ];
        match rules.into_iter().find(|(_, value, range, _)| !range.contains(value)) {
            Some((what, value, _, rule)) => Err(EngineError::Sampling { what, value, rule }),
            None => Ok(()),
        }
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
    /// Only in the last piece.
    pub finish: Option<Finish>,
}

/// How a generation ended.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// Tokens and times.
    pub usage: Usage,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model ended its text (an end-of-generation token).
    End,
    /// A stop string was completed.
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
    /// Those of them whose state was still there from an earlier request.
    pub reused_tokens: usize,
    /// From the first step that read the prompt to the first token.
    pub prefill: Duration,
    /// Tokens generated, an end-of-generation token included.
    pub generated_tokens: usize,
    /// From the first token to the last.
    pub decode: Duration,
}

impl Usage {
    /// Prompt tokens read per second; those reused do not count. `None` if the time is too short to tell.
    pub fn prefill_rate(&self) -> Option<f64> {
        rate(self.prompt_tokens - self.reused_tokens.min(self.prompt_tokens), self.prefill)
    }

    /// Tokens generated per second after the first, which ends the prefill. `None` with fewer than two tokens.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.generated_tokens.saturating_sub(1), self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_ranges() {
        assert!(SamplingOptions::default().check().is_ok());
        assert!(SamplingOptions::greedy().check().is_ok());
        let set: [fn(&mut SamplingOptions, f32); 6] = [
            |s, x| s.temperature = x,
            |s, x| s.top_p = x,
            |s, x| s.min_p = x,
            |s, x| s.repeat_penalty = x,
            |s, x| s.presence_penalty = x,
            |s, x| s.frequency_penalty = x,
        ];
        for (i, set) in set.into_iter().enumerate() {
            let mut bad = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
            match i {
                0 => bad.extend([-0.1]),
                1 => bad.extend([0.0, -1.0, 1.001]),
                2 => bad.extend([-0.1, 1.001]),
                3 => bad.extend([0.0, -1.0]),
                _ => {}
            }
            for value in bad {
                let mut sampling = SamplingOptions::default();
                set(&mut sampling, value);
                assert!(sampling.check().is_err(), "option {i} = {value}");
            }
        }
    }
}

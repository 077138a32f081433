//! The options of a generation, and the one place where they and a prompt become a request.

use gristmill_kernels::ops::SamplingOptions;

use crate::{Dry, Grammar, Pictures, Prompt, ReasoningLimit, Request};

/// How a prompt is completed, apart from what the prompt itself requires. Each field is the field of [`Request`] with its
/// name. Write `GenerationOptions { …, ..GenerationOptions::default() }`: later versions may add fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationOptions {
    /// How tokens are sampled; `None`: as the model recommends ([`Engine::sampling`](crate::Engine::sampling)).
    pub sampling: Option<SamplingOptions>,
    /// See [`Request::logit_bias`].
    pub logit_bias: Vec<(u32, f32)>,
    /// See [`Request::dry`].
    pub dry: Dry,
    /// See [`Request::max_tokens`].
    pub max_tokens: Option<usize>,
    /// See [`Request::min_tokens`].
    pub min_tokens: usize,
    /// See [`Request::stop`].
    pub stop: Vec<String>,
    /// See [`Request::stop_tokens`].
    pub stop_tokens: Vec<u32>,
    /// See [`Request::keeps_stop`].
    pub keeps_stop: bool,
    /// See [`Request::allowed_tokens`].
    pub allowed_tokens: Option<Vec<u32>>,
    /// See [`Request::banned_sequences`].
    pub banned_sequences: Vec<Vec<u32>>,
    /// See [`Request::ignore_end`].
    pub ignore_end: bool,
    /// See [`Request::logprobs`].
    pub logprobs: Option<usize>,
    /// See [`Request::prompt_logprobs`].
    pub prompt_logprobs: Option<usize>,
    /// See [`Request::routing`].
    pub routing: bool,
    /// See [`Request::draft`].
    pub draft: usize,
    /// See [`Request::cache_key`].
    pub cache_key: Option<u64>,
    /// See [`Request::tenant`].
    pub tenant: u64,
}

/// What a prompt requires of its request.
#[derive(Debug, Clone)]
pub(crate) struct Required {
    pub(crate) prompt: Prompt,
    pub(crate) pictures: Pictures,
    /// The sampling if the options have none.
    pub(crate) sampling: SamplingOptions,
    pub(crate) grammar: Option<Grammar>,
    pub(crate) reasoning: Option<ReasoningLimit>,
    pub(crate) control_tokens: bool,
}

impl Required {
    /// A text without a form of its own.
    pub(crate) fn text(prompt: Prompt, sampling: SamplingOptions) -> Required {
        Required {
            prompt,
            pictures: Pictures::default(),
            sampling,
            grammar: None,
            reasoning: None,
            control_tokens: false,
        }
    }

    /// The request. Every field of all three types is named, so a new field is an error here until it has its source.
    pub(crate) fn request(self, options: GenerationOptions) -> Request {
        let Required { prompt, pictures, sampling: recommended, grammar, reasoning, control_tokens } = self;
        let GenerationOptions {
            sampling,
            logit_bias,
            dry,
            max_tokens,
            min_tokens,
            stop,
            stop_tokens,
            keeps_stop,
            allowed_tokens,
            banned_sequences,
            ignore_end,
            logprobs,
            prompt_logprobs,
            routing,
            draft,
            cache_key,
            tenant,
        } = options;
        Request {
            prompt,
            pictures,
            sampling: sampling.unwrap_or(recommended),
            logit_bias,
            dry,
            max_tokens,
            min_tokens,
            stop,
            stop_tokens,
            keeps_stop,
            allowed_tokens,
            banned_sequences,
            reasoning,
            ignore_end,
            grammar,
            logprobs,
            prompt_logprobs,
            routing,
            draft,
            cache_key,
            control_tokens,
            tenant,
        }
    }
}

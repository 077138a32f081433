//! Tokens and times of a reply, and what produces it again.

use gristmill_engine::engine::receipt::{self, Receipt};
use gristmill_engine::engine::{Finish, Usage as Tokens};
use serde::Serialize;
use utoipa::ToSchema;

use crate::generation::{Ending, Outcome};

/// OpenAI's `usage`, and what this server adds.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Usage {
    /// Tokens of the prompt, or of all prompts.
    prompt_tokens: usize,
    /// Tokens of all choices.
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptTokensDetails,
    gristmill: GristmillDetails,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct PromptTokensDetails {
    /// Those whose state was in the prefix cache.
    cached_tokens: usize,
}

/// `usage` of a response.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ResponseUsage {
    /// Tokens of the prompt.
    input_tokens: usize,
    input_tokens_details: PromptTokensDetails,
    /// Tokens generated.
    output_tokens: usize,
    output_tokens_details: OutputTokensDetails,
    total_tokens: usize,
    gristmill: GristmillDetails,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct OutputTokensDetails {
    /// Those of reasoning, and of the marks around it.
    reasoning_tokens: usize,
}

/// How a reply came about.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct GristmillDetails {
    /// The version of this server, its architecture and system.
    build: String,
    /// The fingerprint of the model's file.
    model: String,
    choices: Vec<ChoiceDetails>,
    /// What `gristmill replay` needs to generate the same again, if the request asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    receipt: Option<Receipt>,
}

/// How one choice came about.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct ChoiceDetails {
    /// The seed that its tokens were drawn with.
    seed: u64,
    /// Tokens of the prompt whose state was in the prefix cache.
    reused_tokens: usize,
    /// What the request's prompt has behind them, 40 characters at most, if the cache had a beginning of it and no more:
    /// there it differs from earlier prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_miss: Option<String>,
    /// Tokens that were guessed, and those of them that the model drew.
    drafted_tokens: usize,
    accepted_tokens: usize,
    /// How often the choice was interrupted because the KV cache was full.
    preemptions: usize,
    /// Requests in a forward pass, this one included, in the mean.
    mean_batch: f64,
    /// Milliseconds of waiting for a sequence.
    queue_ms: f64,
    /// Milliseconds from the first step that read the prompt to the first token.
    prefill_ms: f64,
    /// Milliseconds from the first token to the last.
    decode_ms: f64,
}

impl Usage {
    /// Of choices, of which `of_each_prompt` have one prompt.
    pub(crate) fn new(outcome: Outcome, of_each_prompt: usize) -> Usage {
        let finishes: Vec<Finish> = outcome.endings.iter().filter_map(|ending| ending.finish).collect();
        let prompts = finishes.chunks(of_each_prompt.max(1));
        let prompt_tokens =
            prompts.clone().filter_map(|choices| choices.first()).map(|first| first.usage.prompt_tokens);
        let reused = |choices: &[Finish]| choices.iter().map(|choice| choice.usage.reused_tokens).min();
        let prompt_tokens: usize = prompt_tokens.sum();
        let completion_tokens = finishes.iter().map(|finish| finish.usage.generated_tokens).sum();
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens: prompts.filter_map(reused).sum() },
            gristmill: GristmillDetails::new(outcome),
        }
    }
}

impl ResponseUsage {
    pub(crate) fn new(outcome: Outcome, reasoning_tokens: usize) -> ResponseUsage {
        let Usage { prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details, gristmill } =
            Usage::new(outcome, 1);
        ResponseUsage {
            input_tokens: prompt_tokens,
            input_tokens_details: prompt_tokens_details,
            output_tokens: completion_tokens,
            output_tokens_details: OutputTokensDetails { reasoning_tokens },
            total_tokens,
            gristmill,
        }
    }
}

impl GristmillDetails {
    pub(crate) fn new(outcome: Outcome) -> GristmillDetails {
        let Outcome { model, endings, receipt } = outcome;
        let choices = endings.into_iter().filter_map(ChoiceDetails::new).collect();
        GristmillDetails { build: receipt::build(), model, choices, receipt }
    }
}

impl ChoiceDetails {
    fn new(ending: Ending) -> Option<ChoiceDetails> {
        let Finish { seed, usage, .. } = ending.finish?;
        let [queue_ms, prefill_ms, decode_ms] =
            [usage.queue, usage.prefill, usage.decode].map(|time| (time.as_secs_f64() * 1e6).round() / 1e3);
        let Tokens { reused_tokens, drafted_tokens, accepted_tokens, preemptions, .. } = usage;
        let mean_batch = (usage.mean_batch().unwrap_or_default() * 1e3).round() / 1e3;
        Some(ChoiceDetails {
            seed,
            reused_tokens,
            cache_miss: ending.cache_miss,
            drafted_tokens,
            accepted_tokens,
            preemptions,
            mean_batch,
            queue_ms,
            prefill_ms,
            decode_ms,
        })
    }
}

//! Tokens and times of a reply.

use gristmill_engine::engine::{Finish, Usage as Tokens};
use serde::Serialize;
use utoipa::ToSchema;

/// OpenAI's `usage`, and what this server adds.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Usage {
    /// Tokens of the prompt, or of all prompts.
    prompt_tokens: usize,
    /// Tokens of all choices.
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptTokensDetails,
    gristmill: Receipt,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct PromptTokensDetails {
    /// Those whose state was in the prefix cache.
    cached_tokens: usize,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct Receipt {
    choices: Vec<ChoiceReceipt>,
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
    gristmill: Receipt,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct OutputTokensDetails {
    /// Those of reasoning, and of the marks around it.
    reasoning_tokens: usize,
}

/// How one choice came about.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct ChoiceReceipt {
    /// The seed that its tokens were drawn with.
    seed: u64,
    reused_tokens: usize,
    /// Tokens that were guessed, and those of them that the model drew.
    drafted_tokens: usize,
    accepted_tokens: usize,
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
    pub(crate) fn new(finishes: &[Finish], of_each_prompt: usize) -> Usage {
        let of_each_prompt = of_each_prompt.max(1);
        let prompts = finishes.chunks(of_each_prompt);
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
            gristmill: Receipt { choices: finishes.iter().map(ChoiceReceipt::new).collect() },
        }
    }
}

impl ResponseUsage {
    pub(crate) fn new(finish: &Finish, reasoning_tokens: usize) -> ResponseUsage {
        let Usage { prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details, gristmill } =
            Usage::new(&[*finish], 1);
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

impl ChoiceReceipt {
    fn new(finish: &Finish) -> ChoiceReceipt {
        let usage = &finish.usage;
        let [queue_ms, prefill_ms, decode_ms] =
            [usage.queue, usage.prefill, usage.decode].map(|time| (time.as_secs_f64() * 1e6).round() / 1e3);
        let &Tokens { reused_tokens, drafted_tokens, accepted_tokens, .. } = usage;
        let seed = finish.seed;
        let mean_batch = (usage.mean_batch().unwrap_or_default() * 1e3).round() / 1e3;
        ChoiceReceipt {
            seed,
            reused_tokens,
            drafted_tokens,
            accepted_tokens,
            mean_batch,
            queue_ms,
            prefill_ms,
            decode_ms,
        }
    }
}

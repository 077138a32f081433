//! OpenAI's `usage`.

use serde::Serialize;
use utoipa::ToSchema;

use crate::details::GristmillDetails;
use crate::models::ServedModel;
use crate::reply::{Choice, Reply};

/// OpenAI's `usage`, and what this server adds.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Usage {
    /// Tokens of the prompt, or of all prompts.
    prompt_tokens: usize,
    /// Tokens of all choices.
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptTokensDetails,
    /// Not before the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    gristmill: Option<GristmillDetails>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct PromptTokensDetails {
    /// Prompt tokens that were in the prefix cache.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    gristmill: Option<GristmillDetails>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct OutputTokensDetails {
    /// Tokens of reasoning, and of the marks around it.
    reasoning_tokens: usize,
}

impl Usage {
    /// The usage of a whole reply.
    pub(crate) fn new(model: &ServedModel, reply: &Reply) -> Usage {
        Usage { gristmill: Some(GristmillDetails::new(model, reply)), ..Usage::so_far(reply) }
    }

    /// The usage of a reply that grows. Its cached tokens are known at the end.
    pub(crate) fn so_far(reply: &Reply) -> Usage {
        let prompts = reply.choices.chunks(reply.n.max(1));
        let prompt_tokens = prompts.clone().filter_map(<[Choice]>::first).map(|choice| choice.prompt.len()).sum();
        let tokens = |choice: &Choice| choice.finish.map(|finish| finish.usage);
        let reused = |choices: &[Choice]| choices.iter().filter_map(tokens).map(|usage| usage.reused_tokens).min();
        let completion_tokens: usize = reply.choices.iter().map(|choice| choice.tokens.len()).sum();
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens: prompts.filter_map(reused).sum() },
            gristmill: None,
        }
    }

    /// For a reply without the token that the engine generates at least.
    pub(crate) fn of_prompts(self) -> Usage {
        Usage { completion_tokens: 0, total_tokens: self.prompt_tokens, ..self }
    }
}

impl ResponseUsage {
    pub(crate) fn new(model: &ServedModel, reply: &Reply) -> ResponseUsage {
        let Usage { prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details, gristmill } =
            Usage::new(model, reply);
        let reasoning_tokens = reply.choices.iter().map(|choice| choice.reasoning_tokens).sum();
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

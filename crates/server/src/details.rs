//! How a reply came about, which every interface adds to its usage.

use gristmill_engine::receipt::{self, Receipt};
use gristmill_engine::{Drafting, Finish, Usage};
use serde::Serialize;
use utoipa::ToSchema;

use crate::models::ServedModel;
use crate::reply::{Choice, Reply};

/// How a reply came about.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct GristmillDetails {
    /// The version of this server, its architecture and system.
    build: String,
    /// The fingerprint of the model's file.
    model: String,
    choices: Vec<ChoiceDetails>,
    /// The receipt, from which `gristmill replay` generates the same again, if the client requests it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    receipt: Option<Receipt>,
}

/// How one choice came about.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct ChoiceDetails {
    /// The seed of its tokens.
    seed: u64,
    /// Tokens of the prompt that were in the prefix cache.
    reused_tokens: usize,
    /// The prompt's text behind the reused tokens, 40 characters at most, if the cache had a start of it and no
    /// more: there it differs from earlier prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_miss: Option<String>,
    /// Where draft tokens came from: mtp (prediction heads), lookup or model, or off. Absent if the server does not
    /// draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    draft: Option<&'static str>,
    /// Why there were none although the server drafts.
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_off_because: Option<&'static str>,
    /// Draft tokens, and those that the model accepted.
    drafted_tokens: usize,
    accepted_tokens: usize,
    /// The share of accepted draft tokens at each place of a draft.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    acceptance_by_place: Vec<f64>,
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

impl GristmillDetails {
    pub(crate) fn new(model: &ServedModel, reply: &Reply) -> GristmillDetails {
        let model = model.engine.model().fingerprint().to_owned();
        let choices = reply.choices.iter().filter_map(ChoiceDetails::new).collect();
        GristmillDetails { build: receipt::build(), model, choices, receipt: reply.receipt.clone() }
    }
}

impl ChoiceDetails {
    fn new(choice: &Choice) -> Option<ChoiceDetails> {
        let Finish { seed, usage, .. } = choice.finish?;
        let [queue_ms, prefill_ms, decode_ms] =
            [usage.queue, usage.prefill, usage.decode].map(|time| (time.as_secs_f64() * 1e6).round() / 1e3);
        let Usage { reused_tokens, drafted_tokens, accepted_tokens, preemptions, .. } = usage;
        let mean_batch = (usage.mean_batch().unwrap_or_default() * 1e3).round() / 1e3;
        Some(ChoiceDetails {
            seed,
            reused_tokens,
            cache_miss: choice.cache_miss.clone(),
            draft: usage.drafting.map(Drafting::name),
            draft_off_because: usage.drafting.and_then(Drafting::off_because),
            drafted_tokens,
            accepted_tokens,
            acceptance_by_place: usage.acceptance_by_place().map(|share| (share * 1e3).round() / 1e3).collect(),
            preemptions,
            mean_batch,
            queue_ms,
            prefill_ms,
            decode_ms,
        })
    }
}

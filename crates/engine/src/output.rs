//! What an engine returns for a request: pieces of text, why it ended, and its usage.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::logprob::Logprob;

/// An event of a request.
pub(crate) type Event = Result<Piece, EngineError>;

/// Places of draft tokens that are counted. A place after them counts as the last of them.
pub(crate) const PLACES: usize = 8;

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
    /// The index in [`Request::stop`](crate::Request::stop) of the string that ended the text, for [`FinishReason::Stop`]; `None` after a
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
    /// How draft tokens were made, if the request asked for them ([`Request::draft`](crate::Request::draft)).
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
    pub(crate) fn count_draft(&mut self, drafted: usize, accepted: usize) {
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

/// A way to draft, in the usage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drafting {
    /// [`DraftSource::Lookup`](crate::DraftSource::Lookup).
    Lookup,
    /// [`DraftSource::Heads`](crate::DraftSource::Heads).
    Heads,
    /// [`DraftSource::Model`](crate::DraftSource::Model).
    Model,
    /// None, because the sampling of the request depends on tokens that would be draft tokens: on this.
    Off(&'static str),
}

impl Drafting {
    /// `lookup`, `mtp`, `model`, or `off`.
    pub fn name(self) -> &'static str {
        match self {
            Drafting::Lookup => "lookup",
            Drafting::Heads => "mtp",
            Drafting::Model => "model",
            Drafting::Off(_) => "off",
        }
    }

    /// What turned drafts off for the request.
    pub fn off_because(self) -> Option<&'static str> {
        match self {
            Drafting::Off(reason) => Some(reason),
            _ => None,
        }
    }
}

/// What a receiver of pieces wants after a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wanted {
    /// Further pieces, until the request ends.
    More,
    /// One more piece, with which the request ends: the text is complete.
    Last,
    /// Nothing. The request is cancelled.
    Nothing,
}

impl From<bool> for Wanted {
    /// Whether more is wanted.
    fn from(more: bool) -> Wanted {
        if more { Wanted::More } else { Wanted::Nothing }
    }
}

/// The vectors of a request's inputs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Embeddings {
    /// One for each input, in their order: of the model's width
    /// ([`ModelSpec::hidden`](crate::model::spec::ModelSpec::hidden)) and of length 1, except with
    /// [`EmbeddingRequest::last_states`](crate::EmbeddingRequest::last_states).
    pub vectors: Vec<Vec<f32>>,
    /// Tokens and times of all inputs together: `queue` until the first was read, `prefill` from then to the last
    /// vector.
    pub usage: Usage,
}

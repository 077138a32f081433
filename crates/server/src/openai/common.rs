//! Fields that chats, completions and responses share.

use gristmill_engine::GenerationOptions;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::{ApiError, Paths};
use crate::fields::Fields;
use crate::request::{ApiRequest, Input, check_stops};
use crate::sampling::REPETITION_PENALTY;

/// The most choices for one prompt.
const MOST_CHOICES: u32 = 128;
/// The most alternatives of a token, as OpenAI has it.
pub(crate) const MOST_LOGPROBS: usize = 20;

/// The name of the model, and the form of the reply.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub(crate) struct CommonFields {
    /// The name of the model.
    #[expect(dead_code, reason = "the handler reads it first")]
    model: Option<String>,
    /// Send server-sent events while the reply is generated.
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    /// Choices for each prompt.
    #[schema(minimum = 1, maximum = 128)]
    pub(crate) n: Option<u32>,
    /// The text ends before the first of these.
    pub(crate) stop: Option<Stop>,
    /// Return in `usage.gristmill.receipt` all that `gristmill replay` needs to generate the same again; in events,
    /// `usage` is sent then.
    receipt: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    /// Send an event with the usage before the last.
    include_usage: Option<bool>,
    /// Send the usage so far in the other events too.
    continuous_usage_stats: Option<bool>,
}

/// The events that have the usage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamedUsage {
    /// One of its own, before the last.
    pub(crate) at_end: bool,
    /// Each other one, with the usage so far.
    pub(crate) in_each: bool,
}

/// One stop string or several.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a string or a list of strings")]
pub(crate) enum Stop {
    One(String),
    Many(Vec<String>),
}

impl CommonFields {
    /// The number of choices for each prompt.
    pub(crate) fn n(&self) -> Result<usize, ApiError> {
        match self.n {
            Some(n) if !(1..=MOST_CHOICES).contains(&n) => {
                Err(ApiError::param("n", format!("n is {n}; it must be between 1 and {MOST_CHOICES}")))
            }
            n => Ok(n.unwrap_or(1) as usize),
        }
    }

    /// The request with this prompt and these settings.
    pub(crate) fn request(
        &self,
        input: Input,
        settings: GenerationOptions,
        ignored: Vec<String>,
        paths: Paths,
    ) -> Result<ApiRequest, ApiError> {
        let n = self.n()?;
        let receipt = self.wants_receipt();
        Ok(ApiRequest { input, n, settings, receipt, ignored, paths })
    }

    /// Whether the reply is sent as events.
    pub(crate) fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    /// Which events have the usage.
    pub(crate) fn streamed_usage(&self) -> StreamedUsage {
        let options = self.stream_options.unwrap_or_default();
        let in_each = options.continuous_usage_stats == Some(true);
        StreamedUsage { at_end: self.wants_receipt() || in_each || options.include_usage == Some(true), in_each }
    }

    /// Whether the client requests a receipt.
    fn wants_receipt(&self) -> bool {
        self.receipt == Some(true)
    }

    /// The stop strings.
    pub(crate) fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            None => return Ok(Vec::new()),
            Some(Stop::One(stop)) => vec![stop.clone()],
            Some(Stop::Many(stops)) => stops.clone(),
        };
        check_stops("stop", &stops)?;
        Ok(stops)
    }
}

/// The paths of settings in a request whose prompt is in this field.
pub(crate) fn paths(fields: &Fields, prompt: &'static str) -> Paths {
    let max_tokens = fields.spelling(&["max_tokens", "max_completion_tokens", "n_predict"]);
    let repetition_penalty = fields.spelling(&REPETITION_PENALTY);
    Paths { max_tokens, repetition_penalty, ..Paths::new(prompt) }
}

/// Alternatives returned with each token, if log-probabilities are requested, as the field `asks` can.
pub(crate) fn logprobs(asked: bool, top: Option<usize>, asks: &str) -> Result<Option<usize>, ApiError> {
    match (asked, top) {
        (false, Some(n)) if n > 0 => Err(ApiError::param("top_logprobs", format!("top_logprobs needs {asks}"))),
        (_, Some(n)) if n > MOST_LOGPROBS => {
            let message = format!("top_logprobs is {n}; at most {MOST_LOGPROBS} are returned");
            Err(ApiError::param("top_logprobs", message))
        }
        (true, n) => Ok(Some(n.unwrap_or(0))),
        (false, _) => Ok(None),
    }
}

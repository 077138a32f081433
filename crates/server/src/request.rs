//! The request that every interface makes.

use gristmill_engine::engine::{Dry, Grammar, ToolChoice};
use gristmill_engine::{Chat, Prompt, Request, SamplingOptions};

use crate::error::{ApiError, Paths};

/// The most stop strings, and the most bytes of one.
const MOST_STOPS: usize = 64;
const STOP_BYTES: usize = 1_000;

/// Prompts to be completed, and how.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) input: Input,
    /// Choices of each prompt.
    pub(crate) n: usize,
    pub(crate) settings: Settings,
    /// Whether the reply is sent as events.
    pub(crate) stream: bool,
    /// Whether the reply has a receipt.
    pub(crate) receipt: bool,
    /// The paths of fields that change nothing.
    pub(crate) ignored: Vec<String>,
    /// The places of the settings in the caller's request.
    pub(crate) paths: Paths,
}

/// The prompts of a request.
#[derive(Debug)]
pub(crate) enum Input {
    /// A conversation to be answered.
    Conversation(Conversation),
    /// Texts to be continued.
    Texts(Vec<Prompt>),
}

/// A conversation to be answered.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) chat: Chat,
    pub(crate) tool_choice: ToolChoice,
    /// Whether a reply may have several calls.
    pub(crate) parallel_calls: bool,
}

/// How each choice is generated. The engine checks ranges.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) sampling: SamplingOptions,
    pub(crate) logit_bias: Vec<(u32, f32)>,
    pub(crate) dry: Dry,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) min_tokens: usize,
    pub(crate) stop: Vec<String>,
    pub(crate) ignore_end: bool,
    pub(crate) grammar: Option<Grammar>,
    /// Alternatives returned with each generated token, if log-probabilities are asked for.
    pub(crate) logprobs: Option<usize>,
    /// The same for each token of the prompt.
    pub(crate) prompt_logprobs: Option<usize>,
    /// Whether the experts of each generated token are returned.
    pub(crate) routing: bool,
}

impl Settings {
    /// Settings of a request that asks for nothing.
    pub(crate) fn new(sampling: SamplingOptions) -> Settings {
        Settings {
            sampling,
            logit_bias: Vec::new(),
            dry: Dry::default(),
            max_tokens: None,
            min_tokens: 0,
            stop: Vec::new(),
            ignore_end: false,
            grammar: None,
            logprobs: None,
            prompt_logprobs: None,
            routing: false,
        }
    }

    /// A request of the engine with these settings; its grammar and its prompt stay.
    pub(crate) fn apply(&self, request: Request) -> Request {
        let own = self.clone();
        Request {
            sampling: own.sampling,
            logit_bias: own.logit_bias,
            dry: own.dry,
            max_tokens: own.max_tokens,
            min_tokens: own.min_tokens,
            stop: own.stop,
            ignore_end: own.ignore_end,
            logprobs: own.logprobs,
            prompt_logprobs: own.prompt_logprobs,
            routing: own.routing,
            ..request
        }
    }
}

/// Checks the number and lengths of stop strings.
pub(crate) fn check_stops(field: &str, stops: &[String]) -> Result<(), ApiError> {
    if stops.len() > MOST_STOPS {
        let message = format!("{field} has {} strings; at most {MOST_STOPS} are accepted", stops.len());
        return Err(ApiError::param(field, message));
    }
    match stops.iter().find(|stop| stop.len() > STOP_BYTES) {
        Some(stop) => {
            let message = format!("a string of {field} has {} bytes; at most {STOP_BYTES} are accepted", stop.len());
            Err(ApiError::param(field, message))
        }
        None => Ok(()),
    }
}

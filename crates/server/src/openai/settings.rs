//! Fields that requests for a chat and for a completion share.

use std::collections::BTreeMap;

use gristmill_engine::{Request, SamplingOptions};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::fields::Policy;
use crate::state::App;
use crate::tokens::blocking;

/// The most choices for one prompt.
const MOST_CHOICES: u32 = 128;
/// The most stop strings, and the most bytes of one.
const MOST_STOPS: usize = 64;
const STOP_BYTES: usize = 1_000;
/// The most likeliest tokens for each token, as OpenAI has it.
pub(crate) const MOST_LOGPROBS: usize = 20;

/// How tokens are drawn and where a text ends.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub(crate) struct Settings {
    /// The name of the model.
    pub(crate) model: Option<String>,
    /// Send server-sent events while the reply is generated.
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    /// Choices for each prompt.
    #[schema(minimum = 1, maximum = 128)]
    pub(crate) n: Option<u32>,
    /// The text ends before the first of these.
    pub(crate) stop: Option<Stop>,
    /// Divides the logits; 0 always takes the most likely token.
    #[schema(minimum = 0)]
    temperature: Option<f32>,
    /// Keep the smallest set of tokens with at least this probability.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    /// Keep so many of the most likely tokens; 0 and -1 keep all.
    #[schema(minimum = -1)]
    top_k: Option<i64>,
    /// Drop tokens less likely than this share of the most likely.
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f32>,
    /// Divides positive and multiplies negative logits of tokens that were generated before.
    #[serde(alias = "repeat_penalty")]
    #[schema(exclusive_minimum = 0)]
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    /// The same seed, prompt and settings give the same text; choice i is drawn with seed + i.
    #[schema(value_type = Option<i64>)]
    seed: Option<Seed>,
    /// The text does not end before it has so many tokens.
    min_tokens: Option<usize>,
    /// Do not end at end-of-generation tokens.
    ignore_eos: Option<bool>,
    /// Tell in `usage.gristmill.receipt` all that `gristmill replay` needs to generate the same again; in events, `usage` is
    /// sent then.
    receipt: Option<bool>,
    /// Added to the logits of tokens, which are named by their ids.
    logit_bias: Option<BTreeMap<String, f32>>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
pub(crate) struct StreamOptions {
    /// Send an event with the usage before the last.
    pub(crate) include_usage: Option<bool>,
}

/// One stop string or several.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(untagged, expecting = "a string or a list of strings")]
pub(crate) enum Stop {
    One(String),
    Many(Vec<String>),
}

/// A whole number of 64 bits; negative ones are those of two's complement.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(transparent)]
pub(crate) struct Seed(u64);

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seed, D::Error> {
        struct Whole;
        impl Visitor<'_> for Whole {
            type Value = Seed;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a whole number of 64 bits")
            }
            fn visit_u64<E: Error>(self, seed: u64) -> Result<Seed, E> {
                Ok(Seed(seed))
            }
            fn visit_i64<E: Error>(self, seed: i64) -> Result<Seed, E> {
                Ok(Seed(seed.cast_unsigned()))
            }
            fn visit_f64<E: Error>(self, seed: f64) -> Result<Seed, E> {
                Err(E::invalid_type(Unexpected::Float(seed), &self))
            }
        }
        deserializer.deserialize_any(Whole)
    }
}

/// Fields of OpenAI's that change nothing of a reply's text.
pub(crate) const POLICY: Policy = Policy {
    harmless: &[
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    ],
    refused: &[
        ("audio", "this server writes text"),
        ("best_of", "ask for n choices and choose among them"),
        ("function_call", "use tool_choice"),
        ("functions", "use tools"),
        ("grammar", "use guided_grammar, whose grammars are in Lark"),
        ("json_schema", "use response_format"),
        ("suffix", "this server continues texts at their end"),
        ("web_search_options", "this server has no search"),
    ],
};

impl Settings {
    /// The number of choices for each prompt.
    pub(crate) fn choices(&self) -> Result<usize, ApiError> {
        match self.n {
            Some(n) if !(1..=MOST_CHOICES).contains(&n) => {
                Err(ApiError::param("n", format!("n is {n}; it must be between 1 and {MOST_CHOICES}")))
            }
            n => Ok(n.unwrap_or(1) as usize),
        }
    }

    /// Whether the reply is sent as events.
    pub(crate) fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    /// Whether events end with the usage.
    pub(crate) fn streams_usage(&self) -> bool {
        self.receipt() || self.stream_options.is_some_and(|options| options.include_usage == Some(true))
    }

    /// Whether the client asks for a receipt.
    pub(crate) fn receipt(&self) -> bool {
        self.receipt == Some(true)
    }

    /// Sets what is asked for in a request; the engine checks ranges.
    pub(crate) fn apply(&self, request: &mut Request, defaults: &SamplingOptions) -> Result<(), ApiError> {
        request.sampling = self.sampling(defaults)?;
        request.stop = self.stops()?;
        request.min_tokens = self.min_tokens.unwrap_or(0);
        request.ignore_end = self.ignore_eos.unwrap_or(false);
        for (token, &bias) in self.logit_bias.iter().flatten() {
            let id = token.parse().map_err(|_| {
                ApiError::param("logit_bias", format!("{token:?} is not a token id, which is a whole number"))
            })?;
            request.logit_bias.push((id, bias));
        }
        Ok(())
    }

    fn sampling(&self, defaults: &SamplingOptions) -> Result<SamplingOptions, ApiError> {
        let top_k = match self.top_k {
            None => defaults.top_k,
            Some(-1) => 0,
            Some(k) => u32::try_from(k).map_err(|_| {
                ApiError::param("top_k", format!("top_k is {k}; it must be between 1 and {}, or 0 for all", u32::MAX))
            })?,
        };
        Ok(SamplingOptions {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k,
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            repeat_penalty: self.repetition_penalty.unwrap_or(defaults.repeat_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            seed: self.seed.map(|Seed(seed)| seed),
        })
    }

    fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            None => return Ok(Vec::new()),
            Some(Stop::One(stop)) => vec![stop.clone()],
            Some(Stop::Many(stops)) => stops.clone(),
        };
        check_stops("stop", &stops)?;
        Ok(stops)
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

/// How many of the likeliest tokens are told beside each token, if log-probabilities are asked for, as the field `asks` can.
pub(crate) fn logprobs(asked: bool, top: Option<usize>, asks: &str) -> Result<Option<usize>, ApiError> {
    match (asked, top) {
        (false, Some(n)) if n > 0 => Err(ApiError::param("top_logprobs", format!("top_logprobs needs {asks}"))),
        (_, Some(n)) if n > MOST_LOGPROBS => {
            let message = format!("top_logprobs is {n}; at most {MOST_LOGPROBS} are told");
            Err(ApiError::param("top_logprobs", message))
        }
        (true, n) => Ok(Some(n.unwrap_or(0))),
        (false, _) => Ok(None),
    }
}

/// Checks a prompt before it is copied for several choices: one that is longer than the context may have megabytes.
pub(crate) async fn check_prompt(app: &App, request: &Request, n: usize) -> Result<(), ApiError> {
    if n > 1 {
        let (app, prompt) = (app.clone(), request.prompt.clone());
        blocking(move || Ok(app.engine.prompt_tokens(&prompt)?)).await?;
    }
    Ok(())
}

/// Requests for the choices of one prompt, of which each has a seed of its own.
pub(crate) fn choices(request: &Request, n: usize) -> impl Iterator<Item = Request> + '_ {
    (0..n as u64).map(move |i| {
        let mut choice = request.clone();
        choice.sampling.seed = choice.sampling.seed.map(|seed| seed.wrapping_add(i));
        choice
    })
}

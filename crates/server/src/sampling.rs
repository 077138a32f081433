//! How tokens are sampled: the fields of every interface, and their settings of the engine.

use std::collections::BTreeMap;

use gristmill_engine::SamplingOptions;
use gristmill_engine::engine::Dry;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::request::{Settings, check_stops};

/// How tokens are sampled.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub(crate) struct SamplingFields {
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
    /// Added to the logits of tokens, which are named by their ids.
    logit_bias: Option<BTreeMap<String, f32>>,
    /// DRY: the penalty of a token that would continue a repetition of `dry_allowed_length` tokens; 0 turns DRY off.
    #[schema(minimum = 0)]
    dry_multiplier: Option<f32>,
    /// DRY: multiplies the penalty for each token by which the repetition is longer; 1.75 by default.
    #[schema(minimum = 1)]
    dry_base: Option<f32>,
    /// DRY: the shortest repetition that is penalised; 2 by default.
    #[schema(minimum = 1)]
    dry_allowed_length: Option<usize>,
    /// DRY: the last tokens that are looked at; -1, the default, is all, 0 turns DRY off.
    #[schema(minimum = -1)]
    dry_penalty_last_n: Option<i64>,
    /// DRY: texts that end a repetition; a line break, `:`, `"` and `*` by default.
    dry_sequence_breakers: Option<Vec<String>>,
}

/// A whole number of 64 bits; negative ones are those of two's complement.
#[derive(Debug, Clone, Copy)]
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

impl SamplingFields {
    /// The settings that these fields make of the server's.
    pub(crate) fn settings(&self, defaults: &SamplingOptions) -> Result<Settings, ApiError> {
        let mut settings = Settings::new(self.sampling(defaults)?);
        settings.dry = self.dry()?;
        settings.min_tokens = self.min_tokens.unwrap_or(0);
        settings.ignore_end = self.ignore_eos.unwrap_or(false);
        for (token, &bias) in self.logit_bias.iter().flatten() {
            let id = token.parse().map_err(|_| {
                ApiError::param("logit_bias", format!("{token:?} is not a token id, which is a whole number"))
            })?;
            settings.logit_bias.push((id, bias));
        }
        Ok(settings)
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

    fn dry(&self) -> Result<Dry, ApiError> {
        let defaults = Dry::default();
        let penalty_last_n = match self.dry_penalty_last_n {
            None => defaults.penalty_last_n,
            Some(-1) => None,
            Some(n) => Some(usize::try_from(n).map_err(|_| {
                let message = format!("dry_penalty_last_n is {n}; it must be 0 or greater, or -1 for all tokens");
                ApiError::param("dry_penalty_last_n", message)
            })?),
        };
        let sequence_breakers = self.dry_sequence_breakers.clone().unwrap_or(defaults.sequence_breakers);
        check_stops("dry_sequence_breakers", &sequence_breakers)?;
        Ok(Dry {
            multiplier: self.dry_multiplier.unwrap_or(defaults.multiplier),
            base: self.dry_base.unwrap_or(defaults.base),
            allowed_length: self.dry_allowed_length.unwrap_or(defaults.allowed_length),
            penalty_last_n,
            sequence_breakers,
        })
    }
}

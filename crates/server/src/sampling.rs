//! How tokens are sampled: the fields of every interface, and their settings of the engine.

use std::collections::BTreeMap;

use gristmill_engine::{Dry, SETTINGS, Setting, requested_value};
use gristmill_engine::{GenerationOptions, SamplingOptions};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::models::ServedModel;
use crate::request::{check_stops, check_texts};

/// How tokens are sampled.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct SamplingFields {
    /// The settings of [`SETTINGS`] that the request has; [`SettingFields`] describes them.
    #[serde(skip)]
    settings: Vec<(&'static Setting, f64)>,
    /// The same seed, prompt and settings give the same text; choice i is sampled with seed + i. -1 chooses a random
    /// seed, as without the field.
    #[serde(alias = "random_seed")]
    #[schema(value_type = Option<i64>)]
    seed: Option<Seed>,
    /// The text does not end before it has this number of tokens.
    min_tokens: Option<usize>,
    /// Only -1: penalties look at all generated tokens. Without a penalty any number.
    repeat_last_n: Option<i64>,
    /// Do not end at end-of-generation tokens.
    ignore_eos: Option<bool>,
    /// The text ends before the first of these tokens, which are named by their ids.
    stop_token_ids: Option<Vec<u32>>,
    /// The stop string or stop token that ends the text is a part of it.
    #[serde(alias = "no_stop_trim")]
    include_stop_str_in_output: Option<bool>,
    /// No other tokens are sampled, those that end a text included.
    allowed_token_ids: Option<Vec<u32>>,
    /// Texts that are not generated in their own tokens, with or without a space before them. The characters may still
    /// come about in other tokens.
    bad_words: Option<Vec<String>>,
    /// Only requests of the same key with the same text in this field reuse cached prefixes of the request.
    #[serde(alias = "extra_key")]
    cache_salt: Option<String>,
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

/// A whole number of 64 bits; negative ones are those of two's complement. None for -1: other servers choose a seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed(Option<u64>);

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seed, D::Error> {
        struct Whole;
        impl Visitor<'_> for Whole {
            type Value = Seed;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a whole number of 64 bits")
            }
            fn visit_u64<E: Error>(self, seed: u64) -> Result<Seed, E> {
                Ok(Seed(Some(seed)))
            }
            fn visit_i64<E: Error>(self, seed: i64) -> Result<Seed, E> {
                Ok(Seed(Some(seed.cast_unsigned()).filter(|_| seed != -1)))
            }
            fn visit_f64<E: Error>(self, seed: f64) -> Result<Seed, E> {
                Err(E::invalid_type(Unexpected::Float(seed), &self))
            }
        }
        deserializer.deserialize_any(Whole)
    }
}

/// The most texts of `bad_words`.
const MOST_WORDS: usize = 1_000;

/// The names of a setting in requests. The first is that of its description.
fn names(setting: &'static Setting) -> &'static [&'static str] {
    match setting.name {
        "repeat_penalty" => &REPETITION_PENALTY,
        _ => std::slice::from_ref(&setting.name),
    }
}

/// The names of the setting `repeat_penalty`.
pub(crate) const REPETITION_PENALTY: [&str; 2] = ["repetition_penalty", "repeat_penalty"];

/// Describes the fields of [`SETTINGS`] to clients.
#[derive(Debug, Deserialize)]
pub(crate) struct SettingFields {}

impl ToSchema for SettingFields {}

impl PartialSchema for SettingFields {
    fn schema() -> RefOr<Schema> {
        let field = |setting: &Setting| {
            let kind = if setting.whole { Type::Integer } else { Type::Number };
            let field = ObjectBuilder::new().schema_type(SchemaType::from_iter([kind, Type::Null]));
            let field = field.description(Some(format!("{}.", setting.help)));
            let least = Some(least(setting)).filter(|least| *least > f64::from(f32::MIN));
            field.minimum(least).maximum(Some(setting.most).filter(|most| *most < f64::from(f32::MAX)))
        };
        let add = |fields: ObjectBuilder, setting| fields.property(names(setting)[0], field(setting));
        SETTINGS.iter().fold(ObjectBuilder::new(), add).into()
    }
}

impl SamplingFields {
    /// Takes the fields of sampling out of a request.
    pub(crate) fn read(fields: &mut Fields) -> Result<SamplingFields, ApiError> {
        let mut own: SamplingFields = fields.read()?;
        for setting in &SETTINGS {
            for name in names(setting) {
                let Some(value) = number(fields, name, setting)? else { continue };
                if own.settings.iter().any(|(known, _)| known.name == setting.name) {
                    let message = format!("{name} is sent twice, or by two of its names; send it once");
                    return Err(ApiError::param(*name, message));
                }
                own.settings.push((setting, value));
            }
        }
        Ok(own)
    }

    /// The settings that these fields make of the server's.
    pub(crate) fn settings(&self, model: &ServedModel) -> Result<GenerationOptions, ApiError> {
        let bias = |(token, &bias): (&String, &f32)| {
            let wrong =
                |_| ApiError::param("logit_bias", format!("{token:?} is not a token id, which is a whole number"));
            Ok((token.parse::<u32>().map_err(wrong)?, bias))
        };
        let sampling = self.sampling(&model.sampling);
        self.check_window(&sampling)?;
        Ok(GenerationOptions {
            sampling: Some(sampling),
            stop_tokens: self.stop_token_ids.clone().unwrap_or_default(),
            keeps_stop: self.include_stop_str_in_output.unwrap_or(false),
            // Without ids, other servers allow all.
            allowed_tokens: self.allowed_token_ids.clone().filter(|ids| !ids.is_empty()),
            banned_sequences: self.banned(model)?,
            cache_key: self.cache_salt.as_ref().map(|salt| model.app().hash(salt)),
            logit_bias: self.logit_bias.iter().flatten().map(bias).collect::<Result<_, ApiError>>()?,
            dry: self.dry()?,
            min_tokens: self.min_tokens.unwrap_or(0),
            ignore_end: self.ignore_eos.unwrap_or(false),
            ..GenerationOptions::default()
        })
    }

    /// Refuses a window of the penalties.
    fn check_window(&self, sampling: &SamplingOptions) -> Result<(), ApiError> {
        let SamplingOptions { repeat_penalty, presence_penalty, frequency_penalty, .. } = *sampling;
        let has_penalty = repeat_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
        match self.repeat_last_n {
            Some(window) if window != -1 && has_penalty => {
                let message = "repeat_last_n is not supported; penalties look at all generated tokens";
                Err(ApiError::param("repeat_last_n", message).with_code("unsupported"))
            }
            _ => Ok(()),
        }
    }

    fn sampling(&self, defaults: &SamplingOptions) -> SamplingOptions {
        let mut options = SamplingOptions { seed: self.seed.and_then(|Seed(seed)| seed), ..*defaults };
        self.settings.iter().for_each(|(setting, value)| (setting.set)(&mut options, *value));
        options
    }

    /// The tokens of `bad_words`.
    fn banned(&self, model: &ServedModel) -> Result<Vec<Vec<u32>>, ApiError> {
        let words = self.bad_words.as_deref().unwrap_or_default();
        check_texts("bad_words", words, MOST_WORDS)?;
        let mut banned = Vec::new();
        for (index, word) in words.iter().enumerate() {
            for text in [word.clone(), format!(" {word}")] {
                let tokens = model.engine.tokens_within(&text);
                let tokens =
                    tokens.map_err(|error| ApiError::param(format!("bad_words[{index}]"), error.to_string()))?;
                if !banned.contains(&tokens) {
                    banned.push(tokens);
                }
            }
        }
        Ok(banned)
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

/// The least value in requests.
fn least(setting: &Setting) -> f64 {
    let means_least = |number: &f64| requested_value(setting, *number) == setting.least;
    [-1.0, 0.0].into_iter().find(means_least).unwrap_or(setting.least)
}

/// The value of a setting in a field. Whole numbers are checked here, because [`Setting::set`] saturates.
fn number(fields: &mut Fields, name: &'static str, setting: &Setting) -> Result<Option<f64>, ApiError> {
    if !setting.whole {
        let value: Option<f64> = fields.take(name)?;
        return Ok(value.map(|value| requested_value(setting, value)));
    }
    match fields.take::<i64>(name)? {
        None => Ok(None),
        Some(value) => match u32::try_from(requested_value(setting, value as f64) as i64) {
            Ok(value) => Ok(Some(value.into())),
            Err(_) => Err(ApiError::param(name, format!("{name} is {value}; it must be {}", setting.rule))),
        },
    }
}

//! Sampling options, and a table of them for command lines, APIs and files.

use super::check::require;
use crate::error::Result;

/// How a token is sampled from a row of logits. [`SETTINGS`] has the range of each field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 is greedy (argmax after mask, bias and penalties).
    pub temperature: f32,
    /// Keeps the k most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps the smallest set of most likely tokens with at least this probability, and at least one token; 1 keeps
    /// all.
    pub top_p: f32,
    /// Drops tokens whose probability is below this share of the highest probability; 0 keeps all.
    pub min_p: f32,
    /// Divides positive logits and multiplies negative logits of tokens that occur; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Subtracted once from the logits of tokens that occur.
    pub presence_penalty: f32,
    /// Subtracted from a logit for each occurrence of its token.
    pub frequency_penalty: f32,
    /// The seed of the random numbers. `None`: an engine chooses one; the operation uses 0.
    pub seed: Option<u64>,
}

/// A numeric field of [`SamplingOptions`]: every field except the seed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Setting {
    /// The field name, also in requests and receipts.
    pub name: &'static str,
    /// The key in model files, those of llama.cpp, if they have one.
    pub file_key: Option<&'static str>,
    /// One sentence for users, without a full stop.
    pub help: &'static str,
    /// The minimum valid value.
    pub least: f64,
    /// The maximum valid value.
    pub most: f64,
    /// The range in words, after "it must be".
    pub rule: &'static str,
    /// Whether the value is a whole number, from 0 to 2^32 − 1.
    pub whole: bool,
    /// Reads the field.
    pub get: fn(&SamplingOptions) -> f64,
    /// Writes the field; [`SamplingOptions::out_of_range`] then finds a value out of range.
    pub set: fn(&mut SamplingOptions, f64),
}

const POSITIVE: f64 = f32::MIN_POSITIVE as f64;
const LARGEST: f64 = f32::MAX as f64;

/// All settings, in the order of the help text.
pub static SETTINGS: [Setting; 7] = [
    Setting {
        name: "temperature",
        file_key: Some("general.sampling.temp"),
        help: "Divides the logits; 0 always takes the most likely token",
        least: 0.0,
        most: LARGEST,
        rule: "0 or greater, and finite",
        whole: false,
        get: |options| options.temperature.into(),
        set: |options, value| options.temperature = value as f32,
    },
    Setting {
        name: "top_k",
        file_key: Some("general.sampling.top_k"),
        help: "Keep the N most likely tokens; 0 keeps all",
        least: 0.0,
        most: u32::MAX as f64,
        rule: "a whole number from 1 to 4294967295, or 0 for all",
        whole: true,
        get: |options| options.top_k.into(),
        set: |options, value| options.top_k = value as u32,
    },
    Setting {
        name: "top_p",
        file_key: Some("general.sampling.top_p"),
        help: "Keep the smallest set of tokens with at least this probability; 1 keeps all",
        least: POSITIVE,
        most: 1.0,
        rule: "greater than 0 and at most 1",
        whole: false,
        get: |options| options.top_p.into(),
        set: |options, value| options.top_p = value as f32,
    },
    Setting {
        name: "min_p",
        file_key: Some("general.sampling.min_p"),
        help: "Drop tokens less likely than this share of the most likely; 0 keeps all",
        least: 0.0,
        most: 1.0,
        rule: "between 0 and 1",
        whole: false,
        get: |options| options.min_p.into(),
        set: |options, value| options.min_p = value as f32,
    },
    Setting {
        name: "repeat_penalty",
        file_key: Some("general.sampling.penalty_repeat"),
        help: "Divides positive and multiplies negative logits of tokens of the generated text; 1 turns it off",
        least: POSITIVE,
        most: LARGEST,
        rule: "greater than 0, and finite; 1 turns it off",
        whole: false,
        get: |options| options.repeat_penalty.into(),
        set: |options, value| options.repeat_penalty = value as f32,
    },
    Setting {
        name: "presence_penalty",
        file_key: None,
        help: "Subtracted once from the logits of tokens of the generated text; 0 turns it off",
        least: -LARGEST,
        most: LARGEST,
        rule: "a finite number; 0 turns it off",
        whole: false,
        get: |options| options.presence_penalty.into(),
        set: |options, value| options.presence_penalty = value as f32,
    },
    Setting {
        name: "frequency_penalty",
        file_key: None,
        help: "Subtracted from the logit of a token for each occurrence in the generated text; 0 turns it off",
        least: -LARGEST,
        most: LARGEST,
        rule: "a finite number; 0 turns it off",
        whole: false,
        get: |options| options.frequency_penalty.into(),
        set: |options, value| options.frequency_penalty = value as f32,
    },
];

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { temperature: 0.7, top_k: 40, top_p: 0.95, min_p: 0.05, ..Self::NONE }
    }
}

impl SamplingOptions {
    /// Greedy sampling without filters and penalties.
    pub const NONE: Self = Self {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repeat_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        seed: None,
    };

    /// The defaults with temperature 0, which is greedy.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether a penalty needs the counts of preceding tokens.
    pub fn penalises(&self) -> bool {
        self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// The first setting that is out of range. NaN is always out of range.
    pub fn out_of_range(&self) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| !(setting.least..=setting.most).contains(&(setting.get)(self)))
    }

    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        match self.out_of_range() {
            Some(Setting { name, rule, get, .. }) => require(false, op, name, get(self), rule),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value is set and read unchanged. Settings are independent. Each end of a range is the last valid value.
    #[test]
    fn settings_are_fields_with_ranges() {
        for defaults in [SamplingOptions::default(), SamplingOptions::greedy(), SamplingOptions::NONE] {
            assert!(defaults.out_of_range().is_none());
        }
        for setting in &SETTINGS {
            let with = |value| {
                let mut options = SamplingOptions::default();
                (setting.set)(&mut options, value);
                options
            };
            for value in [setting.least, setting.most] {
                let options = with(value);
                assert!(options.out_of_range().is_none(), "{} {value}", setting.name);
                assert_eq!((setting.get)(&options), value, "{}", setting.name);
                let mut back = options;
                (setting.set)(&mut back, (setting.get)(&SamplingOptions::default()));
                assert_eq!(back, SamplingOptions::default(), "{}", setting.name);
            }
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, setting.least - 1.0, setting.most * 1.001] {
                // A whole number saturates.
                let found = with(value).out_of_range().map(|wrong| wrong.name);
                let expected = (!setting.whole && !(setting.least..=setting.most).contains(&f64::from(value as f32)))
                    .then_some(setting.name);
                assert_eq!(found, expected, "{} {value}", setting.name);
            }
        }
    }
}

//! Sampling options: their check, and how they are written into receipts.

use std::fmt;

use gristmill_kernels::ops::{SETTINGS, SamplingOptions, Setting};
use serde::Serializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;

use crate::{EngineError, seed};

/// Checks the range of every option.
///
/// # Errors
/// [`EngineError::Sampling`] names the first that is out of range. NaN is out of every range.
pub fn check_sampling(options: &SamplingOptions) -> Result<(), EngineError> {
    match options.out_of_range() {
        Some(setting) => {
            let value = (setting.get)(options) as f32;
            Err(EngineError::Sampling { what: setting.name, value, rule: setting.rule })
        }
        None => Ok(()),
    }
}

/// The setting whose 0 means the most likely token only, as its least value does.
const TOP_P: &str = "top_p";

/// The value of a setting for a number in a request or an option: other programs write -1 for all tokens, and a `top_p`
/// of 0 for the most likely token.
pub fn requested_value(setting: &Setting, number: f64) -> f64 {
    match number {
        -1.0 if setting.whole => 0.0,
        0.0 if setting.name == TOP_P => setting.least,
        number => number,
    }
}

/// An object with each setting and the seed.
pub(super) fn serialize<S: Serializer>(options: &SamplingOptions, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(SETTINGS.len() + 1))?;
    for setting in &SETTINGS {
        let value = (setting.get)(options);
        match setting.whole {
            true => map.serialize_entry(setting.name, &(value as u64))?,
            false => map.serialize_entry(setting.name, &(value as f32))?,
        }
    }
    map.serialize_entry(SEED, &options.seed.map(seed::Text))?;
    map.end()
}

const SEED: &str = "seed";

/// An object with each setting once, and a seed if there is one.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SamplingOptions, D::Error> {
    struct Settings;
    impl<'de> Visitor<'de> for Settings {
        type Value = SamplingOptions;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("an object with sampling options")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<SamplingOptions, M::Error> {
            let mut options = SamplingOptions::NONE;
            let mut has = [false; SETTINGS.len()];
            while let Some(name) = map.next_key::<String>()? {
                if name == SEED {
                    options.seed = map.next_value::<Option<seed::Text>>()?.map(|seed::Text(seed)| seed);
                    continue;
                }
                let Some(index) = SETTINGS.iter().position(|setting| setting.name == name) else {
                    return Err(Error::custom(format!("unknown field `{name}`")));
                };
                let setting = &SETTINGS[index];
                let value =
                    if setting.whole { map.next_value::<u32>()?.into() } else { map.next_value::<f32>()?.into() };
                (setting.set)(&mut options, value);
                has[index] = true;
            }
            match SETTINGS.iter().zip(has).find(|(_, has)| !has) {
                Some((setting, _)) => Err(Error::missing_field(setting.name)),
                None => Ok(options),
            }
        }
    }
    deserializer.deserialize_map(Settings)
}

//! The settings of a model, `config.json`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::{ConvertError, cut};
use super::files::read_json;

/// A JSON object whose getters name what they expected.
#[derive(Debug, Clone)]
pub(super) struct Config {
    path: PathBuf,
    entries: Map<String, Value>,
}

impl Config {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Config, ConvertError> {
        Ok(Config { path: path.to_owned(), entries: read_json(path)? })
    }

    /// Reads a file that need not be there.
    pub(super) fn read_optional(path: &Path) -> Result<Config, ConvertError> {
        match path.exists() {
            true => Self::read(path),
            false => Ok(Config { path: path.to_owned(), entries: Map::new() }),
        }
    }

    /// The value of a key; `null` counts as missing.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.entries.get(key).filter(|value| !value.is_null())
    }

    /// An object within, as `rope_parameters`.
    pub(super) fn object(&self, key: &str) -> Result<Option<Config>, ConvertError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Object(entries)) => Ok(Some(Config { path: self.path.clone(), entries: entries.clone() })),
            Some(other) => Err(self.wrong(key, other, "an object")),
        }
    }

    pub(super) fn count(&self, key: &str) -> Result<Option<u32>, ConvertError> {
        let read = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        self.get(key, read, "a whole number of 32 bits, not negative")
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        self.get(key, number, "a number that 32 bits hold")
    }

    /// A number above 0.
    pub(super) fn positive(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        self.get(key, |value| number(value).filter(|&x| x as f32 > 0.0), "a number above 0 that 32 bits hold")
    }

    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, ConvertError> {
        let all = |value: &Value| value.as_array()?.iter().map(number).collect();
        self.get(key, all, "a list of numbers that 32 bits hold")
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ConvertError> {
        self.get(key, Value::as_bool, "true or false")
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, ConvertError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, other, "a text")),
        }
    }

    fn get<T>(
        &self,
        key: &str,
        read: fn(&Value) -> Option<T>,
        expected: &'static str,
    ) -> Result<Option<T>, ConvertError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(key, value, expected)),
        }
    }

    /// An error about a key's value.
    pub(super) fn wrong(&self, key: &str, found: &Value, expected: impl Into<String>) -> ConvertError {
        let (path, found) = (self.path.clone(), cut(found, 80));
        ConvertError::Setting { path, key: key.to_owned(), found, expected: expected.into() }
    }

    /// An error about a key that is not there.
    pub(super) fn missing(&self, key: &str) -> ConvertError {
        ConvertError::NoSetting { path: self.path.clone(), key: key.to_owned() }
    }
}

/// A number that is finite as f32, which it becomes.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|&x| (x as f32).is_finite())
}

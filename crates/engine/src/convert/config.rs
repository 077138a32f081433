//! The settings of a model, `config.json`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::{ConvertError, cut};
use super::files::read_json;

/// A JSON object whose getters refuse a value of another type, and say what they expected.
///
/// A `null` is refused like any wrong type: transformers passes it on in the place of the default, which breaks the model.
/// Where it declares a setting as optional, and `null` means that it is not set, [`Config::without_nulls`] takes it out.
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

    /// Takes out those of these settings that are `null`: there it means that they are not set.
    pub(super) fn without_nulls(mut self, keys: &[&str]) -> Config {
        self.entries.retain(|key, value| !(value.is_null() && keys.contains(&key.as_str())));
        self
    }

    /// The value of a key.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// An object within, as `rope_parameters`.
    pub(super) fn object(&self, key: &str) -> Result<Option<Config>, ConvertError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Object(entries)) => Ok(Some(Config { path: self.path.clone(), entries: entries.clone() })),
            Some(other) => Err(self.wrong_type(key, other, "an object")),
        }
    }

    pub(super) fn count(&self, key: &str) -> Result<Option<u32>, ConvertError> {
        let read = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        self.get(key, Type::Number, read, "a whole number of 32 bits, not negative")
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        self.get(key, Type::Number, number, "a number that 32 bits hold")
    }

    /// A number above 0.
    pub(super) fn positive(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        let read = |value: &Value| number(value).filter(|&x| x as f32 > 0.0);
        self.get(key, Type::Number, read, "a number above 0 that 32 bits hold")
    }

    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, ConvertError> {
        let all = |value: &Value| value.as_array()?.iter().map(number).collect();
        self.get(key, Type::List, all, "a list of numbers that 32 bits hold")
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ConvertError> {
        self.get(key, Type::Flag, Value::as_bool, "true or false")
    }

    pub(super) fn list(&self, key: &str) -> Result<Option<&[Value]>, ConvertError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(other) => Err(self.wrong_type(key, other, "a list")),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, ConvertError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(key, other, "a string")),
        }
    }

    fn get<T>(
        &self,
        key: &str,
        wanted: Type,
        read: fn(&Value) -> Option<T>,
        expected: &'static str,
    ) -> Result<Option<T>, ConvertError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) if Type::of(value) != wanted => Err(self.wrong_type(key, value, expected)),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(key, value, expected)),
        }
    }

    /// An error about a value of another type than that of `expected`.
    pub(super) fn wrong_type(&self, key: &str, found: &Value, expected: impl Into<String>) -> ConvertError {
        let shown = match Type::of(found).name() {
            None => cut(found, 80),
            Some(name) => format!("{} ({name})", cut(found, 80)),
        };
        ConvertError::Setting { path: self.path.clone(), key: key.to_owned(), found: shown, expected: expected.into() }
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

/// The type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Null,
    Flag,
    Number,
    Text,
    List,
    Object,
}

impl Type {
    fn of(value: &Value) -> Type {
        match value {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Flag,
            Value::Number(_) => Type::Number,
            Value::String(_) => Type::Text,
            Value::Array(_) => Type::List,
            Value::Object(_) => Type::Object,
        }
    }

    /// For messages; `null` is a name already.
    fn name(self) -> Option<&'static str> {
        match self {
            Type::Null => None,
            Type::Flag => Some("a boolean"),
            Type::Number => Some("a number"),
            Type::Text => Some("a string"),
            Type::List => Some("a list"),
            Type::Object => Some("an object"),
        }
    }
}

/// A number that is finite as f32, which it becomes.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|&x| (x as f32).is_finite())
}

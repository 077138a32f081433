//! The key-value pairs of a GGUF file in file order, with getters that say what they expected and what they found.

use std::collections::HashMap;

use super::error::MetadataError;
use super::value::{Array, Value, ValueType};

/// A key-value pair and the offset of its value.
#[derive(Debug, Clone)]
struct Entry {
    key: String,
    value: Value,
    offset: u64,
}

/// The key-value pairs of a file, in file order.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    entries: Vec<Entry>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// Appends a pair whose key is not there yet.
    pub(super) fn push(&mut self, key: String, value: Value, offset: u64) {
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push(Entry { key, value, offset });
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(*self.index.get(key)?)
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The pairs in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|e| (e.key.as_str(), &e.value))
    }

    /// Whether the key is there.
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// The value of any type.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.entry(key).map(|e| &e.value)
    }

    /// The byte offset in the file at which the value of `key` starts (its type number), for error messages.
    pub fn offset(&self, key: &str) -> Option<u64> {
        self.entry(key).map(|e| e.offset)
    }

    /// The value as `T`; `None` if the key is missing.
    ///
    /// # Errors
    /// [`MetadataError::Type`] or [`MetadataError::Range`] if the key is there but its value is not a `T`.
    pub fn optional<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, MetadataError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        let unfit = match T::from_value(&entry.value) {
            Ok(v) => return Ok(Some(v)),
            Err(unfit) => unfit,
        };
        let key = entry.key.clone();
        let offset = entry.offset;
        let expected = T::EXPECTED;
        Err(match unfit {
            Unfit::Type => MetadataError::Type { key, offset, expected, found: entry.value.describe() },
            Unfit::Range(found) => MetadataError::Range { key, offset, expected, found },
        })
    }

    /// The value as `T`.
    ///
    /// # Errors
    /// The errors of [`optional`](Self::optional), and [`MetadataError::Missing`] without the key.
    pub fn required<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, MetadataError> {
        self.optional(key)?.ok_or_else(|| MetadataError::Missing { key: key.to_owned(), expected: T::EXPECTED })
    }
}

/// Why a value is not the type requested.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unfit {
    /// Another type.
    Type,
    /// This number, which does not fit.
    Range(String),
}

/// A type that a metadata value can be read as: integers from any integer type that fits, `f32` and `f64` from either,
/// `bool`, `&str`, and arrays of these.
pub trait FromValue<'a>: Sized {
    /// The expected type, as error messages say it.
    const EXPECTED: &'static str;

    /// Reads the value.
    ///
    /// # Errors
    /// [`Unfit`] says why it cannot be read.
    fn from_value(value: &'a Value) -> Result<Self, Unfit>;
}

/// Integers, each with its range in words.
macro_rules! integers {
    ($($t:ty: $range:literal;)*) => {$(
        impl FromValue<'_> for $t {
            const EXPECTED: &'static str = concat!("an integer ", $range);
            fn from_value(value: &Value) -> Result<Self, Unfit> {
                let v = value.as_integer().ok_or(Unfit::Type)?;
                v.try_into().map_err(|_| Unfit::Range(v.to_string()))
            }
        }
        impl FromValue<'_> for Vec<$t> {
            const EXPECTED: &'static str = concat!("an array of integers ", $range);
            fn from_value(value: &Value) -> Result<Self, Unfit> {
                let Value::Array(a) = value else { return Err(Unfit::Type) };
                a.integers()
                    .ok_or(Unfit::Type)?
                    .enumerate()
                    .map(|(i, v)| v.try_into().map_err(|_| Unfit::Range(format!("{v} (element {i})"))))
                    .collect()
            }
        }
    )*};
}

integers! {
    u8: "from 0 to 255";
    i8: "from -128 to 127";
    u16: "from 0 to 65535";
    i16: "from -32768 to 32767";
    u32: "from 0 to 4294967295";
    i32: "from -2147483648 to 2147483647";
    u64: "from 0 to 18446744073709551615";
    i64: "from -9223372036854775808 to 9223372036854775807";
    usize: "of at least 0";
}

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "a float that 32 bits hold";
    fn from_value(value: &Value) -> Result<Self, Unfit> {
        match *value {
            Value::F32(v) => Ok(v),
            Value::F64(v) if v.is_finite() && (v as f32).is_infinite() => Err(Unfit::Range(v.to_string())),
            Value::F64(v) => Ok(v as f32),
            _ => Err(Unfit::Type),
        }
    }
}

impl FromValue<'_> for f64 {
    const EXPECTED: &'static str = "a float";
    fn from_value(value: &Value) -> Result<Self, Unfit> {
        match *value {
            Value::F32(v) => Ok(v.into()),
            Value::F64(v) => Ok(v),
            _ => Err(Unfit::Type),
        }
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "a boolean";
    fn from_value(value: &Value) -> Result<Self, Unfit> {
        if let Value::Bool(v) = value { Ok(*v) } else { Err(Unfit::Type) }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "a string";
    fn from_value(value: &'a Value) -> Result<Self, Unfit> {
        if let Value::String(v) = value { Ok(v) } else { Err(Unfit::Type) }
    }
}

macro_rules! slices {
    ($($variant:ident: $t:ty, $name:literal;)*) => {$(
        impl<'a> FromValue<'a> for &'a [$t] {
            const EXPECTED: &'static str = $name;
            fn from_value(value: &'a Value) -> Result<Self, Unfit> {
                match value {
                    Value::Array(Array::$variant(v)) => Ok(v),
                    // An empty array has no element to be of the wrong type.
                    Value::Array(a) if a.is_empty() && a.element_type() != ValueType::$variant => Ok(&[]),
                    _ => Err(Unfit::Type),
                }
            }
        }
    )*};
}

slices! {
    String: String, "an array of strings";
    F32: f32, "an array of floats of 32 bits";
    Bool: bool, "an array of booleans";
}

//! Seeds: random ones, and seeds in JSON, where they are texts, because a reader that keeps numbers as doubles rounds
//! those above 2^53.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A random seed below 2^53, which a JSON reader that keeps numbers as doubles represents exactly.
pub(super) fn draw() -> u64 {
    // The standard library seeds each `RandomState` with system randomness.
    RandomState::new().build_hasher().finish() >> 11
}

/// A seed in JSON: its digits in quotes. A number is read too, for receipts that people write.
pub(super) struct Text(pub(super) u64);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a whole number below 2^64 in quotes")
            }
            fn visit_u64<E: Error>(self, seed: u64) -> Result<Text, E> {
                Ok(Text(seed))
            }
            fn visit_str<E: Error>(self, digits: &str) -> Result<Text, E> {
                digits.parse().map(Text).map_err(|_| E::invalid_value(Unexpected::Str(digits), &self))
            }
        }
        deserializer.deserialize_any(Digits)
    }
}

pub(super) fn serialize<S: Serializer>(seed: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    Text(*seed).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Text::deserialize(deserializer).map(|Text(seed)| seed)
}

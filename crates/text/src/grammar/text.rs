//! A schema in JSON as the text of it.

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serializer};
use serde_json::Value;

pub(super) fn serialize<S: Serializer>(schema: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(schema)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let text = String::deserialize(deserializer)?;
    serde_json::from_str(&text).map_err(|error| D::Error::custom(format!("the schema is not valid JSON: {error}")))
}

//! The fields of a request: those that an interface knows become structs, the others are judged one by one.

use axum::http::{HeaderName, HeaderValue};
use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The header of a reply that names the fields of the request which changed nothing.
pub(crate) const IGNORED: HeaderName = HeaderName::from_static("x-gristmill-ignored");

/// Reads the fields that `T` has.
pub(crate) fn read<T: DeserializeOwned>(fields: &Map<String, Value>) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(fields).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        let param = if path == "." { missing(&message).to_owned() } else { path };
        ApiError::param(param, message)
    })
}

/// The field that a message of serde names, as in "missing field `messages`".
fn missing(message: &str) -> &str {
    message.split('`').nth(1).unwrap_or_default()
}

/// What an interface does with fields that it does not read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    /// Accepted without a word: they change nothing of the result.
    pub(crate) harmless: &'static [&'static str],
    /// Would change the result, and are not supported; with what to do instead.
    pub(crate) refused: &'static [(&'static str, &'static str)],
}

/// Judges the fields that are in none of the lists `known`. Gives the names of those that are ignored.
pub(crate) fn judge(
    fields: &Map<String, Value>,
    known: &[&[&str]],
    policy: Policy,
    strict: bool,
) -> Result<Vec<String>, ApiError> {
    let mut ignored = Vec::new();
    for (name, value) in fields {
        let name = name.as_str();
        if value.is_null() || known.iter().any(|known| known.contains(&name)) || policy.harmless.contains(&name) {
            continue;
        }
        if let Some((_, advice)) = policy.refused.iter().find(|(refused, _)| *refused == name) {
            return Err(ApiError::param(name, format!("{name} is not supported; {advice}")).with_code("unsupported"));
        }
        ignored.push(name.to_owned());
    }
    check_strict(&ignored, strict)?;
    Ok(ignored)
}

/// Refuses the first of the fields that are ignored, if requests are judged strictly.
pub(crate) fn check_strict(ignored: &[String], strict: bool) -> Result<(), ApiError> {
    match ignored.first() {
        Some(name) if strict => {
            Err(ApiError::param(name, format!("{name} would be ignored, and this server is strict; leave it out")))
        }
        _ => Ok(()),
    }
}

/// The header that names ignored fields, if there are any and they can be written in a header.
pub(crate) fn ignored_header(ignored: &[String]) -> Option<(HeaderName, HeaderValue)> {
    if ignored.is_empty() {
        return None;
    }
    // Names come from strangers: a reply's headers have a bound as well.
    let mut names = ignored.iter().map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(", ");
    if let Some((end, _)) = names.char_indices().nth(500) {
        names.truncate(end);
    }
    let ascii: String = names.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
    HeaderValue::from_str(&ascii).ok().map(|value| (IGNORED, value))
}

/// The names of the fields of a struct that serde reads.
pub(crate) fn names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // Fails, because there is no data; by then it has told the names.
    let _ = T::deserialize(Names(&mut names));
    names
}

struct Names<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("a struct has names, and no data"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Deserialize)]
    struct Sample {
        #[serde(alias = "amount")]
        number: u32,
        #[serde(default)]
        list: Vec<Sample>,
    }

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(fields) => fields,
            _ => unreachable!("the tests write objects"),
        }
    }

    #[test]
    fn a_wrong_field_is_named_by_its_path() {
        let error = |value| read::<Sample>(&object(value)).map(|sample| sample.number).expect_err("wrong");
        let named = |value| serde_json::to_value(error(value).body()).expect("JSON")["error"]["param"].clone();
        assert_eq!(named(json!({"number": "x"})), json!("number"));
        assert_eq!(named(json!({"number": 1, "list": [{"number": 1}, {"number": -1}]})), json!("list[1].number"));
        assert_eq!(named(json!({"list": []})), json!("number"));
        let sample = read::<Sample>(&object(json!({"amount": 1, "list": [{"number": 2}]}))).expect("right");
        assert_eq!((sample.number, sample.list[0].number), (1, 2));
    }

    #[test]
    fn fields_are_judged() {
        assert_eq!(names::<Sample>(), ["amount", "number", "list"]);
        let policy = Policy { harmless: &["store"], refused: &[("best_of", "use n")] };
        let judge = |value, strict| judge(&object(value), &[names::<Sample>()], policy, strict);
        assert!(judge(json!({"number": 1, "store": true, "best_of": null}), true).expect("known").is_empty());
        assert_eq!(judge(json!({"number": 1, "colour": 2}), false).expect("ignored"), ["colour"]);
        assert!(judge(json!({"colour": 2}), true).expect_err("strict").message.contains("colour"));
        assert!(judge(json!({"best_of": 2}), false).expect_err("refused").message.contains("use n"));
        let (_, value) = ignored_header(&["a\r\nb".to_owned(), "é".repeat(1000)]).expect("a header");
        assert!(value.len() <= 500 && !value.as_bytes().contains(&b'\n'));
    }
}

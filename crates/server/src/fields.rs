//! The fields of a request: those that an interface knows become structs, the others are judged one by one.

mod words;

use axum::http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The header of a reply that names the fields of the request which changed nothing.
pub(crate) const IGNORED: HeaderName = HeaderName::from_static("x-gristmill-ignored");

/// Names of one field, of which clients send several for servers that know only one of them.
const SYNONYMS: [&[&str]; 3] = [
    &["max_tokens", "max_completion_tokens", "n_predict"],
    &["repetition_penalty", "repeat_penalty"],
    &[
        "thinking_budget",
        "reasoning_budget",
        "thinking_token_budget",
        "thinking_budget_tokens",
        "reasoning_budget_tokens",
    ],
];

/// Objects with fields that are whole numbers. Objects with JSON of the caller, such as schemas, are left as they are.
const WITH_NUMBERS: [&str; 2] = ["reasoning", "thinking"];

/// The fields of a request, of which some are read.
#[derive(Debug)]
pub(crate) struct Fields {
    /// The fields that nothing has read.
    object: Map<String, Value>,
    /// The names of the fields that were read, as the request spells them.
    read: Vec<String>,
}

/// How an interface treats fields that it does not read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    /// Accepted without a word: they change nothing of the result.
    pub(crate) harmless: &'static [&'static [&'static str]],
    pub(crate) refused: &'static [&'static [Refused]],
}

/// A field that would change the result, and is not supported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub(crate) field: &'static str,
    /// Values, as JSON, that request what happens anyway. They are accepted without a word.
    pub(crate) neutral: &'static [&'static str],
    /// The remedy.
    pub(crate) advice: &'static str,
}

impl Fields {
    /// A field that is null counts as one that was not sent, and 16.0 is 16. Of the names of one field that have the
    /// same value, one is kept. `best_of` choices of which all are returned are `n` choices.
    pub(crate) fn new(mut object: Map<String, Value>) -> Fields {
        object.retain(|_, value| !value.is_null());
        object.values_mut().for_each(whole);
        for name in WITH_NUMBERS {
            let nested = object.get_mut(name).and_then(Value::as_object_mut);
            nested.into_iter().flat_map(Map::values_mut).for_each(whole);
        }
        if object.get("best_of") == object.get("n") {
            object.remove("best_of");
        }
        for names in SYNONYMS {
            let Some(first) = names.iter().find(|name| object.contains_key(**name)) else { continue };
            let value = object[*first].clone();
            object.retain(|name, other| name == first || *other != value || !names.contains(&name.as_str()));
        }
        Fields { object, read: Vec::new() }
    }

    /// Takes the fields that `T` has: their texts are moved, because a prompt may have megabytes. A field is read once.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        let names = names::<T>();
        let (own, others) =
            std::mem::take(&mut self.object).into_iter().partition(|(name, _)| names.contains(&name.as_str()));
        let own: Map<String, Value> = own;
        self.object = others;
        self.read.extend(own.keys().cloned());
        serde_path_to_error::deserialize(Value::Object(own)).map_err(|error| {
            let path = error.path().to_string();
            let message = error.into_inner().to_string();
            let missing = words::name(&message).filter(|_| message.starts_with("missing field"));
            let param = match (path.as_str(), missing) {
                (".", missing) => missing.or(words::name(&message)).unwrap_or_default().to_owned(),
                (_, Some(missing)) => format!("{path}.{missing}"),
                (_, None) => path,
            };
            ApiError::param(param, words::in_words(&message))
        })
    }

    /// Takes one field, which is a number.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.object.remove(name) else { return Ok(None) };
        self.read.push(name.to_owned());
        let wrong = |error: serde_json::Error| ApiError::param(name, words::in_words(&error.to_string()));
        serde_json::from_value(value).map(Some).map_err(wrong)
    }

    /// The field `model`, which is read later.
    pub(crate) fn model(&self) -> Result<Option<String>, ApiError> {
        let wrong = |error: serde_json::Error| ApiError::param("model", words::in_words(&error.to_string()));
        self.object.get("model").map(String::deserialize).transpose().map_err(wrong)
    }

    /// Whether a field is `true`, which is read later.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.object.get(name) == Some(&Value::Bool(true))
    }

    /// Whether the request has this field, and nothing has read it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// The one of these names that the request has, or else the first.
    pub(crate) fn spelling(&self, names: &[&'static str]) -> &'static str {
        let is_sent = |name: &str| self.object.contains_key(name) || self.read.iter().any(|read| read == name);
        let sent = names.iter().find(|name| is_sent(name));
        sent.or(names.first()).copied().unwrap_or_default()
    }

    /// The paths of the fields in an object that `T` does not have; the object has not been read.
    pub(crate) fn others<T: DeserializeOwned>(&self, field: &str) -> Vec<String> {
        let fields = self.object.get(field).and_then(Value::as_object).into_iter().flatten();
        let others = fields.filter(|(name, value)| !value.is_null() && !names::<T>().contains(&name.as_str()));
        others.map(|(name, _)| format!("{field}.{name}")).collect()
    }

    /// Judges the fields that were not read. Returns the names of those that are ignored.
    pub(crate) fn judge(self, policy: Policy) -> Result<Vec<String>, ApiError> {
        let mut ignored = Vec::new();
        for (name, value) in &self.object {
            let is = |known: &&str| *known == name.as_str();
            let harmless = policy.harmless.iter().copied().flatten().any(is);
            if harmless {
                continue;
            }
            match policy.refused.iter().copied().flatten().find(|refused| is(&refused.field)) {
                Some(refused) => refused.check(value)?,
                None => ignored.push(name.clone()),
            }
        }
        Ok(ignored)
    }
}

impl Refused {
    fn check(&self, value: &Value) -> Result<(), ApiError> {
        let Refused { field, neutral, advice } = self;
        let same = |neutral: &&str| match (serde_json::from_str(neutral), value.as_f64()) {
            (Ok(Value::Number(neutral)), Some(number)) => neutral.as_f64() == Some(number),
            (Ok(neutral), _) => neutral == *value,
            (Err(_), _) => false,
        };
        if asks_nothing(value)
            || (*value == Value::Bool(false) && !neutral.contains(&"true"))
            || neutral.iter().any(same)
        {
            return Ok(());
        }
        Err(ApiError::param(*field, format!("{field} is not supported; {advice}")).with_code("unsupported"))
    }
}

/// Writes a number without a fraction as an integer, which it is by JSON Schema; also numbers in lists, such as token ids.
/// In some languages all numbers of JSON are floats.
fn whole(value: &mut Value) {
    if let Value::Array(items) = value {
        items.iter_mut().for_each(whole);
    }
    // Beyond, floats stand for several integers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT);
    if let (true, Some(float)) = (value.is_f64(), float)
        && let Ok(integer) = format!("{float:.0}").parse::<i64>()
    {
        *value = integer.into();
    }
}

/// Whether a value is a client's default that requests nothing. `false` is such a value if `true` is not.
fn asks_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A field that is refused with any value that requests something.
pub(crate) const fn refused(field: &'static str, advice: &'static str) -> Refused {
    Refused { field, neutral: &[], advice }
}

/// A field that is refused, except with these values.
pub(crate) const fn refused_unless(
    field: &'static str,
    neutral: &'static [&'static str],
    advice: &'static str,
) -> Refused {
    Refused { field, neutral, advice }
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
fn names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // Fails, because there is no data; by then it has reported the names.
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

    #[derive(Debug, Deserialize)]
    struct Sample {
        #[serde(alias = "amount")]
        number: u32,
        #[serde(default)]
        list: Vec<Sample>,
    }

    fn fields(value: Value) -> Fields {
        match value {
            Value::Object(fields) => Fields::new(fields),
            _ => unreachable!("the tests write objects"),
        }
    }

    #[test]
    fn a_wrong_field_is_named_by_its_path() {
        let named = |value| fields(value).read::<Sample>().map(|sample| sample.number).expect_err("wrong").param;
        assert_eq!(named(json!({"number": "x"})).as_deref(), Some("number"));
        let list = |item: Value| json!({"number": 1, "list": [{"number": 1}, item]});
        assert_eq!(named(list(json!({"number": -1}))).as_deref(), Some("list[1].number"));
        assert_eq!(named(list(json!({}))).as_deref(), Some("list[1].number"));
        assert_eq!(named(list(json!(5))).as_deref(), Some("list[1]"));
        assert_eq!(named(json!({"list": []})).as_deref(), Some("number"));
        let mut right = fields(json!({"amount": 1, "list": [{"number": 2}]}));
        assert_eq!((right.spelling(&["number", "amount"]), right.spelling(&["number", "x"])), ("amount", "number"));
        let sample = right.read::<Sample>().expect("right");
        assert_eq!((sample.number, sample.list[0].number), (1, 2));
    }

    #[test]
    fn numbers_without_a_fraction_are_whole() {
        let sent = json!({
            "max_tokens": 16.0, "prompt": [[5.0, 6.5], 7.0], "thinking": {"budget_tokens": 1024.0},
            "tools": [{"schema": {"const": 1.0}}], "metadata": {"a": 1.0}});
        let expected = json!({
            "max_tokens": 16, "prompt": [[5, 6.5], 7], "thinking": {"budget_tokens": 1024},
            "tools": [{"schema": {"const": 1.0}}], "metadata": {"a": 1.0}});
        // Compared as texts, in which 1.0 differs from 1.
        assert_eq!(Value::Object(fields(sent).object).to_string(), expected.to_string());
    }

    #[test]
    fn as_many_choices_as_are_returned_are_all() {
        for (sent, is_kept) in [
            (json!({"n": 3, "best_of": 3.0}), false),
            (json!({"n": 2, "best_of": 3}), true),
            (json!({"best_of": 3}), true),
            (json!({"n": 3}), false),
        ] {
            assert_eq!(fields(sent.clone()).has("best_of"), is_kept, "{sent}");
        }
    }

    #[test]
    fn fields_are_judged() {
        const POLICY: Policy = Policy {
            harmless: &[&["store"]],
            refused: &[&[refused_unless("best_of", &["1", "false"], "use n"), refused("suffix", "leave it out")]],
        };
        let judge = |value| {
            let mut fields = fields(value);
            fields.read::<Sample>()?;
            fields.judge(POLICY)
        };
        let harmless = json!({"number": 1, "store": true, "best_of": 1.0, "suffix": null});
        assert!(judge(harmless).expect("known").is_empty());
        for nothing in [json!([]), json!({}), json!(""), json!(false)] {
            assert_eq!(judge(json!({"number": 1, "suffix": nothing})).expect("it asks for nothing"), [""; 0]);
        }
        assert_eq!(judge(json!({"amount": 1, "colour": 2})).expect("ignored"), ["colour"]);
        for (value, advice) in [(json!({"best_of": 2}), "use n"), (json!({"suffix": "x"}), "leave it out")] {
            let mut value = value;
            value["number"] = json!(1);
            assert!(judge(value).expect_err("refused").message.contains(advice));
        }
        assert!(check_strict(&["colour".to_owned()], true).expect_err("strict").message.contains("colour"));
        assert!(check_strict(&["colour".to_owned()], false).is_ok() && check_strict(&[], true).is_ok());
        let (_, value) = ignored_header(&["a\r\nb".to_owned(), "é".repeat(1000)]).expect("a header");
        assert!(value.len() <= 500 && !value.as_bytes().contains(&b'\n'));
    }
}

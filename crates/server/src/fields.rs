//! The fields of a request: those that an interface knows become structs, the others are judged one by one.
//!
//! # Errors use the caller's names
//!
//! The engine finds the error, and the parser has the caller's names of fields. So a request carries its `Paths`, and a
//! pointer into a schema becomes a path in the request. serde's messages are translated (`fields/words.rs`).

mod misspelt;
mod value;
mod words;

use axum::http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde_json::{Map, Value};

use crate::error::ApiError;
use value::{Unread, Wrong};

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
    /// The fields of objects in those that were read, which nothing has read.
    unread: Vec<Unread>,
}

/// How an interface treats fields that it does not read. A field within another has the path without indices, such as
/// `messages.name`; `*.name` is that field within any object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    /// Accepted without a word: they change nothing of the result.
    pub(crate) harmless: &'static [&'static [&'static str]],
    pub(crate) refused: &'static [&'static [Refused]],
    /// Objects that are not read, and are named as a whole. Their fields are not judged.
    pub(crate) left_out: &'static [LeftOut],
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

/// Objects in the lists at these paths that are not read, because their `type` is none of these.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeftOut {
    pub(crate) at: &'static [&'static str],
    pub(crate) except: &'static [&'static str],
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
        Fields { object, read: Vec::new(), unread: Vec::new() }
    }

    /// Takes the fields that `T` has: their texts are moved, because a prompt may have megabytes. A field is read once.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        let names = names::<T>();
        let (own, others) =
            std::mem::take(&mut self.object).into_iter().partition(|(name, _)| names.contains(&name.as_str()));
        let own: Map<String, Value> = own;
        self.object = others;
        self.read.extend(own.keys().cloned());
        value::read(Value::Object(own), "", &mut self.unread).map_err(ApiError::from)
    }

    /// Takes one field, which is a number.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.object.remove(name) else { return Ok(None) };
        self.read.push(name.to_owned());
        let wrong = |error: serde_json::Error| ApiError::param(name, words::in_words(&error.to_string()));
        serde_json::from_value(value).map(Some).map_err(wrong)
    }

    /// A field that is read later.
    pub(crate) fn value_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.object.get_mut(name)
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

    /// Judges the fields that were not read, at every depth. Returns the paths of those that are ignored.
    pub(crate) fn judge(self, policy: Policy, strict: bool) -> Result<Vec<String>, ApiError> {
        let mut ignored = Vec::new();
        for Unread { path, value, kind } in self.unread {
            ignored.extend(policy.judge(path, &value, kind.as_deref())?);
        }
        for (name, value) in self.object {
            ignored.extend(policy.judge(name, &value, None)?);
        }
        check_strict(&ignored, strict)?;
        Ok(ignored)
    }
}

/// Reads the value at a path whose form depends on another field. Adds the paths of fields that change nothing to
/// `ignored`.
pub(crate) fn read_at<T: DeserializeOwned>(
    value: Value,
    at: &str,
    policy: Policy,
    ignored: &mut Vec<String>,
) -> Result<T, ApiError> {
    let mut unread = Vec::new();
    let read = value::read(value, at, &mut unread)?;
    for Unread { path, value, kind } in unread {
        ignored.extend(policy.judge(path, &value, kind.as_deref())?);
    }
    Ok(read)
}

impl From<Wrong> for ApiError {
    fn from(Wrong { path, message }: Wrong) -> ApiError {
        let name = words::name(&message).unwrap_or_default();
        let is_of_object = message.starts_with("missing field") || message.starts_with("unknown field");
        let param = match path.as_str() {
            "" => name.to_owned(),
            _ if is_of_object => format!("{path}.{name}"),
            _ => path,
        };
        ApiError::param(param, words::in_words(&message))
    }
}

impl Policy {
    /// The path of a field that is ignored; `None` if it is harmless.
    fn judge(self, path: String, value: &Value, kind: Option<&str>) -> Result<Option<String>, ApiError> {
        let plain = without_indices(&path);
        let is = |known: &str| match known.strip_prefix("*.") {
            Some(name) => plain.rsplit_once('.').is_some_and(|(_, last)| last == name),
            None => known == plain,
        };
        let list = plain.rsplit_once('.').map_or("", |(of, _)| of);
        let is_harmless = || self.harmless.iter().copied().flatten().any(|known| is(known));
        if self.left_out.iter().any(|left_out| left_out.has(list, kind)) || is_harmless() {
            return Ok(None);
        }
        if let Some(refused) = self.refused.iter().copied().flatten().find(|refused| is(refused.field)) {
            return refused.check(&path, value).map(|()| None);
        }
        match misspelt::resembles(&path).filter(|_| !asks_nothing(value)) {
            Some(known) => {
                let is_same = path.ends_with(known);
                let problem = match is_same {
                    true => format!("{path}: {known} is not read at this place, and would change nothing; move it"),
                    false => format!("{path}: this field is unknown, and looks like {known}; correct its name"),
                };
                let problem = format!("{problem}, or leave it out");
                Err(ApiError::param(path, problem))
            }
            None => Ok(Some(path)),
        }
    }
}

impl LeftOut {
    /// Whether an object of this type in this list is left out.
    fn has(self, list: &str, kind: Option<&str>) -> bool {
        self.at.contains(&list) && kind.is_some_and(|kind| !self.except.contains(&kind))
    }
}

/// A path without the indices of lists.
fn without_indices(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('[') {
        plain += before;
        rest = after.split_once(']').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

impl Refused {
    /// Refuses the field at this path, unless its value requests what happens anyway.
    fn check(&self, path: &str, value: &Value) -> Result<(), ApiError> {
        let Refused { neutral, advice, .. } = self;
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
        Err(ApiError::param(path, format!("{path} is not supported; {advice}")).with_code("unsupported"))
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
            harmless: &[&["store", "*.signature"]],
            refused: &[
                &[refused_unless("best_of", &["1", "false"], "use n"), refused("suffix", "leave it out")],
                &[refused("list.image", "leave it out")],
            ],
            left_out: &[LeftOut { at: &["list"], except: &["sample"] }],
        };
        let judge = |value| {
            let mut fields = fields(value);
            fields.read::<Sample>()?;
            fields.judge(POLICY, false)
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
        let nested = |item: Value| judge(json!({"number": 1, "list": [{"number": 2}, item]}));
        for (item, ignored) in [
            (json!({"number": 1, "colour": 2, "other": null}), vec!["list[1].colour"]),
            (json!({"number": 1, "list": [{"number": 1, "signature": "x", "a": {"b": 1}}]}), vec!["list[1].list[0].a"]),
            (json!({"number": 1, "type": "else", "image": 1}), vec![]),
            (json!({"number": 1, "type": "sample", "image": []}), vec!["list[1].type"]),
        ] {
            assert_eq!(nested(item.clone()).expect("ignored"), ignored, "{item}");
        }
        let refused = nested(json!({"number": 1, "image": "x"})).expect_err("refused");
        assert_eq!((refused.param.as_deref(), refused.code), (Some("list[1].image"), Some("unsupported")));
        let misspelt = judge(json!({"number": 1, "respnse_format": {"type": "x"}})).expect_err("refused");
        assert_eq!(misspelt.param.as_deref(), Some("respnse_format"));
        assert!(misspelt.message.contains("response_format"), "{}", misspelt.message);
        assert!(check_strict(&["colour".to_owned()], true).expect_err("strict").message.contains("colour"));
        assert!(check_strict(&["colour".to_owned()], false).is_ok() && check_strict(&[], true).is_ok());
        let (_, value) = ignored_header(&["a\r\nb".to_owned(), "é".repeat(1000)]).expect("a header");
        assert!(value.len() <= 500 && !value.as_bytes().contains(&b'\n'));
    }
}

//! A tool call, from the JSON text in which a model writes it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;
use serde_json::value::RawValue;

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The tool's name, as the model writes it.
    pub name: String,
    /// A JSON object: the model's own text, or made from it where the model writes XML.
    pub arguments: String,
}

/// The fields of `{"name": …, "arguments": {…}}`, which some models call `tool_name` and `parameters`. `type`, `id` and
/// `index` are ignored. Any other field is refused, because it can be an argument in the wrong place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'t> {
    #[serde(borrow, alias = "tool_name")]
    name: Cow<'t, str>,
    #[serde(borrow, alias = "parameters")]
    arguments: Option<&'t RawValue>,
    #[serde(rename = "type")]
    _type: Option<IgnoredAny>,
    #[serde(rename = "id", alias = "tool_call_id", alias = "call_id")]
    _id: Option<IgnoredAny>,
    #[serde(rename = "index")]
    _index: Option<IgnoredAny>,
}

impl ToolCall {
    /// The call in a JSON object with `name` and `arguments` or `parameters`; `{}` if there are no arguments.
    pub(super) fn from_object(object: &str) -> Option<ToolCall> {
        let fields: Fields = serde_json::from_str(object).ok()?;
        ToolCall::new(&fields.name, fields.arguments.map_or("{}", RawValue::get))
    }

    /// The call in a JSON object whose only key is the name, and whose value is the arguments.
    pub(super) fn from_keyed_object(object: &str) -> Option<ToolCall> {
        let calls: Vec<(String, &RawValue)> = serde_json::from_str(object).map(|Keyed(calls)| calls).ok()?;
        match calls.as_slice() {
            [(name, arguments)] => ToolCall::new(name, arguments.get()),
            _ => None,
        }
    }

    /// The call in a JSON object that nothing announces: it must have arguments.
    pub(super) fn from_unmarked_object(object: &str) -> Option<ToolCall> {
        let fields: Fields = serde_json::from_str(object).ok()?;
        ToolCall::new(&fields.name, fields.arguments?.get())
    }

    /// A call whose arguments are a JSON object, or a string with the text of one.
    pub(super) fn new(name: &str, arguments: &str) -> Option<ToolCall> {
        let arguments = arguments.trim();
        let inner: Option<String> =
            if arguments.starts_with('"') { serde_json::from_str(arguments).ok() } else { None };
        let arguments = match inner.as_deref().map(str::trim) {
            Some("") => "{}",
            Some(inner) => inner,
            None => arguments,
        };
        let valid = !name.is_empty() && serde_json::from_str::<Arguments>(arguments).is_ok();
        valid.then(|| ToolCall { name: name.to_owned(), arguments: arguments.to_owned() })
    }
}

/// The names of a JSON object, each with its value.
struct Keyed<'t>(Vec<(String, &'t RawValue)>);

impl<'de: 't, 't> Deserialize<'de> for Keyed<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Keyed<'t>, D::Error> {
        deserializer.deserialize_map(KeyedVisitor)
    }
}

struct KeyedVisitor;

impl<'de> Visitor<'de> for KeyedVisitor {
    type Value = Keyed<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Keyed<'de>, A::Error> {
        let mut calls = Vec::new();
        while let Some(call) = fields.next_entry()? {
            calls.push(call);
        }
        Ok(Keyed(calls))
    }
}

/// A JSON object with unique names: with a repeated name it would be unclear which value is meant.
struct Arguments;

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Arguments, D::Error> {
        deserializer.deserialize_map(Arguments)
    }
}

impl<'de> Visitor<'de> for Arguments {
    type Value = Arguments;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Arguments, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, _)) = fields.next_entry::<String, Json>()? {
            if !names.insert(name) {
                return Err(A::Error::custom("a name that is there twice"));
            }
        }
        Ok(Arguments)
    }
}

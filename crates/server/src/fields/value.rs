//! Values of a request as serde reads them: an error has its path, and so has each field that nothing reads.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Error, Map, Value};

/// A field of an object that the interface does not have.
#[derive(Debug, Clone)]
pub(super) struct Unread {
    pub(super) path: String,
    pub(super) value: Value,
    /// The `type` of the object, by which interfaces distinguish tools, parts and items.
    pub(super) kind: Option<String>,
}

/// The path of a wrong value, and serde's message about it.
pub(super) struct Wrong {
    pub(super) path: String,
    pub(super) message: String,
}

/// Reads the value at this path, and adds the fields that nothing reads, except for nulls, which clients send for what
/// they leave out.
pub(super) fn read<T: DeserializeOwned>(value: Value, at: &str, unread: &mut Vec<Unread>) -> Result<T, Wrong> {
    let mut found = Found { unread, wrong: None };
    let value = Located { value, path: &Path::Start(at), kind: None, found: &mut found };
    let read = T::deserialize(value);
    read.map_err(|error| Wrong { path: found.wrong.unwrap_or_else(|| at.to_owned()), message: error.to_string() })
}

struct Found<'f> {
    unread: &'f mut Vec<Unread>,
    /// The path of the innermost value with an error.
    wrong: Option<String>,
}

/// The place of a value.
enum Path<'p> {
    Start(&'p str),
    Field(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Start(at) => f.write_str(at),
            Path::Field(Path::Start(""), name) => f.write_str(name),
            Path::Field(of, name) => write!(f, "{of}.{name}"),
            Path::Item(of, index) => write!(f, "{of}[{index}]"),
        }
    }
}

/// A value, and where it is.
struct Located<'p, 'f, 'u> {
    value: Value,
    path: &'p Path<'p>,
    /// The type of the object that has it.
    kind: Option<&'p str>,
    found: &'f mut Found<'u>,
}

impl Found<'_> {
    /// Keeps the path of the innermost error.
    fn at<T>(&mut self, path: &Path, read: Result<T, Error>) -> Result<T, Error> {
        if read.is_err() && self.wrong.is_none() {
            self.wrong = Some(path.to_string());
        }
        read
    }
}

impl<'de> Deserializer<'de> for Located<'_, '_, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Located { value, path, found, .. } = self;
        match value {
            Value::Array(items) => visitor.visit_seq(Items { rest: items.into_iter(), index: 0, path, found }),
            Value::Object(fields) => {
                let kind = fields.get("type").and_then(Value::as_str).map(str::to_owned);
                visitor.visit_map(Entries { rest: fields.into_iter(), kind, next: None, path, found })
            }
            value => value.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.value.is_null() {
            let path = self.path.to_string();
            let kind = self.kind.map(str::to_owned);
            self.found.unread.push(Unread { path, value: self.value, kind });
        }
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

struct Items<'p, 'f, 'u> {
    rest: std::vec::IntoIter<Value>,
    index: usize,
    path: &'p Path<'p>,
    found: &'f mut Found<'u>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(value) = self.rest.next() else { return Ok(None) };
        let path = Path::Item(self.path, self.index);
        self.index += 1;
        let read = seed.deserialize(Located { value, path: &path, kind: None, found: self.found });
        self.found.at(&path, read).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Entries<'p, 'f, 'u> {
    rest: <Map<String, Value> as IntoIterator>::IntoIter,
    kind: Option<String>,
    next: Option<(String, Value)>,
    path: &'p Path<'p>,
    found: &'f mut Found<'u>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        let key: StringDeserializer<Error> = name.clone().into_deserializer();
        self.next = Some((name, value));
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let Some((name, value)) = self.next.take() else { return Err(Error::custom("a field has no value")) };
        let path = Path::Field(self.path, &name);
        let read = seed.deserialize(Located { value, path: &path, kind: self.kind.as_deref(), found: self.found });
        self.found.at(&path, read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the fields that are not read are of interest")]
    struct Sample {
        a: Option<u32>,
        #[serde(default)]
        list: Vec<Sample>,
        any: Option<Value>,
        map: Option<BTreeMap<String, f32>>,
    }

    #[test]
    fn fields_that_nothing_reads_have_their_path() {
        let value = json!({
            "a": 1, "b": 2, "none": null, "any": {"x": [{"y": 1}]}, "map": {"p": 1},
            "list": [{}, {"type": "t", "c": {"d": 1}, "list": [{"e": []}]}]});
        let mut unread = Vec::new();
        assert!(read::<Sample>(value, "at", &mut unread).is_ok());
        let found: Vec<(&str, Option<&str>)> =
            unread.iter().map(|unread| (unread.path.as_str(), unread.kind.as_deref())).collect();
        let expected = [
            ("at.b", None),
            ("at.list[1].type", Some("t")),
            ("at.list[1].c", Some("t")),
            ("at.list[1].list[0].e", None),
        ];
        assert_eq!(found, expected);
        assert_eq!(unread[2].value, json!({"d": 1}));
    }

    /// As serde_json reads it.
    #[test]
    fn values_and_errors_are_those_of_serde_json() {
        for (value, path) in [
            (json!({"any": {"x": [1.5, "a", null, {"y": true}]}, "a": 3}), None),
            (json!({"a": "x"}), Some("a")),
            (json!({"a": 1.5}), Some("a")),
            (json!({"list": [{}, {"list": {}}]}), Some("list[1].list")),
            (json!({"list": [{}, null]}), Some("list[1]")),
            (json!({"map": {"p": "x"}}), Some("map.p")),
            (json!([1]), Some("")),
        ] {
            let expected = serde_json::from_value::<Sample>(value.clone()).map_err(|error| error.to_string());
            match (read::<Sample>(value.clone(), "", &mut Vec::new()), expected) {
                (Ok(_), Ok(_)) => assert_eq!(path, None, "{value}"),
                (Err(wrong), Err(message)) => {
                    assert_eq!((Some(&*wrong.path), wrong.message), (path, message), "{value}");
                }
                other => panic!("{value}: {:?}", other.1),
            }
        }
        let value = json!({"x": [1, -2, 1.5, "a", null, {"y": true}]});
        assert_eq!(read::<Value>(value.clone(), "", &mut Vec::new()).ok(), Some(value));
    }
}

//! JSON as clients write it.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, Map, Value};

/// Why a text is not read as JSON.
#[derive(Debug)]
pub(crate) enum Malformed {
    Syntax(Error),
    /// The object at a path has a name twice; the path ends with the name.
    Twice(String),
}

/// Reads JSON. Programs differ in which of two fields of one name counts, so such an object is refused.
pub(crate) fn parse(json: &[u8]) -> Result<Value, Malformed> {
    let twice = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = Once(&twice).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| twice.take().map_or(Malformed::Syntax(error), Malformed::Twice))
}

/// Reads a value whose objects have each name once. Within an error, collects the path of a name that is there twice.
#[derive(Clone, Copy)]
struct Once<'a>(&'a RefCell<Option<String>>);

impl Once<'_> {
    /// Adds a step to the start of the path.
    fn within<T, E>(self, step: impl FnOnce() -> String, read: Result<T, E>) -> Result<T, E> {
        if read.is_err()
            && let Some(path) = self.0.borrow_mut().as_mut()
        {
            let dot = if path.starts_with('[') { "" } else { "." };
            *path = format!("{}{dot}{path}", step());
        }
        read
    }
}

impl<'de> DeserializeSeed<'de> for Once<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = self.within(|| format!("[{}]", list.len()), items.next_element_seed(self))? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                *self.0.borrow_mut() = Some(name);
                return Err(A::Error::custom("a name is there twice"));
            }
            let value = self.within(|| name.clone(), fields.next_value_seed(self))?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

/// The escape of U+FFFD, which stands for half of a surrogate pair.
const REPLACEMENT: &[u8; 6] = b"\\ufffd";

/// Replaces the escapes of surrogates without their other half by U+FFFD, as Python's and JavaScript's readers let them
/// pass. Programs cut texts at 16-bit units, through the middle of an emoji. Takes linear time.
pub(crate) fn mend_surrogates(json: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == b'\\')) {
        at += found;
        at += match (escaped(json, at), escaped(json, at + REPLACEMENT.len())) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * REPLACEMENT.len(),
            (Some(0xd800..=0xdfff), _) => {
                json[at..at + REPLACEMENT.len()].copy_from_slice(REPLACEMENT);
                REPLACEMENT.len()
            }
            // Another escape, of which the second character may be a backslash.
            _ => 2,
        };
    }
}

/// The code unit of an escape `\uXXXX` at a place.
fn escaped(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + REPLACEMENT.len())?.strip_prefix(b"\\u")?;
    // The number would also be read with a sign.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_as_serde_json_reads_it() {
        for json in [
            r#"{"a": [1, -2, 1.5, 1e400, 18446744073709551615, 123456789012345678901234567890, null, true, "é\n"], "b": {}}"#,
            "[]",
            "[1] 2",
            "{\"a\":1,}",
            "",
            "{1:2}",
            "[1",
        ] {
            let found = parse(json.as_bytes()).map_err(|error| match error {
                Malformed::Syntax(error) => error.to_string(),
                Malformed::Twice(path) => path,
            });
            let expected = serde_json::from_str::<Value>(json).map_err(|error| error.to_string());
            assert_eq!(found, expected, "{json}");
        }
        let deep = "[".repeat(200);
        assert!(matches!(parse(deep.as_bytes()), Err(Malformed::Syntax(_))));
    }

    #[test]
    fn a_name_that_is_there_twice_has_its_path() {
        for (json, expected) in [
            (r#"{"a": 1, "b": 2, "a": 1}"#, "a"),
            (r#"{"m": [1, {"c": {"x": 1, "\u0078": 2}}]}"#, "m[1].c.x"),
            (r#"[[{"a": 1, "a": 1}]]"#, "[0][0].a"),
        ] {
            assert!(matches!(parse(json.as_bytes()), Err(Malformed::Twice(path)) if path == expected), "{json}");
        }
    }

    #[test]
    fn surrogates_without_their_half_are_replaced() {
        for (json, mended) in [
            (r#""a \ud83d b""#, r#""a \ufffd b""#),
            (r#""\uDE00""#, r#""\ufffd""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ud83d\u0041""#, r#""\ufffd\u0041""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\ud83"#, r#""\ud83"#),
            (r#""\u+83d""#, r#""\u+83d""#),
            ("\\", "\\"),
            ("", ""),
            ("\"é\"", "\"é\""),
        ] {
            let mut bytes = json.as_bytes().to_vec();
            mend_surrogates(&mut bytes);
            assert_eq!(String::from_utf8_lossy(&bytes), mended, "{json}");
        }
    }
}

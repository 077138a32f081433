//! References within a schema: JSON pointers (RFC 6901) behind `#`.

use serde_json::Value;

/// Adds a step to a JSON pointer.
pub(super) fn push(path: &mut String, step: &str) {
    path.push('/');
    path.push_str(&step.replace('~', "~0").replace('/', "~1"));
}

/// The JSON pointer of a reference, without percent-encoding; `None` if it does not lead into the schema itself.
pub(super) fn of_reference(reference: &str) -> Option<String> {
    let pointer = percent_decoded(reference.strip_prefix('#')?)?;
    // "#/" is the property with an empty name.
    (pointer.is_empty() || pointer.starts_with('/')).then_some(pointer)
}

/// The value at a pointer. `None` if there is none, or if the way leads through a schema with a name of its own, within
/// which references have another base.
pub(super) fn find<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut value = root;
    for (depth, step) in pointer.split('/').skip(1).enumerate() {
        if depth > 0 && is_named(value) {
            return None;
        }
        let step = step.replace("~1", "/").replace("~0", "~");
        value = match value {
            Value::Object(object) => object.get(&step)?,
            Value::Array(items) => items.get(step.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// References that are followed, one behind another.
const MAX_REFERENCES: usize = 8;

/// The schema that a reference stands for. `None` if it is not found.
pub(super) fn resolved<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    let mut schema = schema;
    for _ in 0..MAX_REFERENCES {
        let Some(reference) = schema.get("$ref") else { return Some(schema) };
        schema = find(root, &of_reference(reference.as_str()?)?)?;
    }
    None
}

/// Whether a schema has an identifier, to which references within it are relative.
pub(super) fn is_named(schema: &Value) -> bool {
    ["$id", "id"].iter().any(|key| schema.get(key).is_some_and(Value::is_string))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_within_the_schema() {
        for (reference, pointer) in [
            ("#", Some("")),
            ("#/$defs/a", Some("/$defs/a")),
            ("#/a%25b~1c~0", Some("/a%b~1c~0")),
            ("#/a%2", None),
            ("#/a%zz", None),
            ("#name", None),
            ("other.json#/a", None),
            ("https://example.com/a", None),
            ("", None),
        ] {
            assert_eq!(of_reference(reference).as_deref(), pointer, "{reference}");
        }
        let schema = json!({"a/b": [1, {"~": 2}], "named": {"$id": "x", "in": 3}, "": 4});
        for (pointer, value) in [("/a~1b/1/~0", Some(2)), ("/named/in", None), ("/a~1b/2", None), ("/", Some(4))] {
            assert_eq!(find(&schema, pointer).and_then(Value::as_i64), value, "{pointer}");
        }
        let mut path = String::new();
        push(&mut path, "a/b~");
        assert_eq!(path, "/a~1b~0");
    }
}

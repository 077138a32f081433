//! A validator of the keywords that the tests use, written from the specification.

use serde_json::Value;

/// Whether a value is valid for a schema, whose references lead to definitions of `root`.
pub(super) fn valid(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else { return schema == &Value::Bool(true) };
    let all =
        |list: &Value, check: &dyn Fn(&Value) -> bool| list.as_array().unwrap().iter().filter(|s| check(s)).count();
    let apply = |schema: &Value| valid(root, schema, value);
    keywords.iter().all(|(key, of)| match key.as_str() {
        "type" if of.is_string() => is(of, value),
        "type" => all(of, &|name| is(name, value)) > 0,
        "const" => equal(of, value),
        "enum" => all(of, &|constant| equal(constant, value)) > 0,
        "anyOf" => all(of, &apply) > 0,
        "oneOf" => all(of, &apply) == 1,
        "allOf" => all(of, &apply) == of.as_array().unwrap().len(),
        "$ref" => apply(root.pointer(&of.as_str().unwrap()[1..]).unwrap()),
        "$defs" | "title" => true,
        _ => match value {
            Value::Object(object) => object_keyword(root, keywords, key, of, object),
            Value::Array(items) => array_keyword(root, keywords, key, of, items),
            Value::String(text) => string_keyword(key, of, text),
            Value::Number(number) => number_keyword(key, of, number.as_f64().unwrap()),
            _ => true,
        },
    })
}

type Object = serde_json::Map<String, Value>;

fn is(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

fn object_keyword(root: &Value, keywords: &Object, key: &str, of: &Value, object: &Object) -> bool {
    let named = |name: &str| keywords.get("properties").is_some_and(|p| p.get(name).is_some());
    // Patterns of tests are "^" and a start.
    let matching = |pattern: &str, name: &str| name.starts_with(pattern.strip_prefix('^').unwrap());
    match key {
        "properties" => object.iter().all(|(name, value)| of.get(name).is_none_or(|schema| valid(root, schema, value))),
        "patternProperties" => of.as_object().unwrap().iter().all(|(pattern, schema)| {
            object.iter().filter(|(name, _)| matching(pattern, name)).all(|(_, value)| valid(root, schema, value))
        }),
        "additionalProperties" => object.iter().all(|(name, value)| {
            let patterns = keywords.get("patternProperties").and_then(Value::as_object);
            let known = patterns.is_some_and(|p| p.keys().any(|pattern| matching(pattern, name)));
            named(name) || known || valid(root, of, value)
        }),
        "required" => of.as_array().unwrap().iter().all(|name| object.contains_key(name.as_str().unwrap())),
        "minProperties" => object.len() as u64 >= of.as_u64().unwrap(),
        "maxProperties" => object.len() as u64 <= of.as_u64().unwrap(),
        _ => true,
    }
}

fn array_keyword(root: &Value, keywords: &Object, key: &str, of: &Value, items: &[Value]) -> bool {
    let prefix = keywords.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
    match key {
        "prefixItems" => items.iter().zip(of.as_array().unwrap()).all(|(item, schema)| valid(root, schema, item)),
        "items" => items.iter().skip(prefix).all(|item| valid(root, of, item)),
        "minItems" => items.len() as u64 >= of.as_u64().unwrap(),
        "maxItems" => items.len() as u64 <= of.as_u64().unwrap(),
        _ => true,
    }
}

fn string_keyword(key: &str, of: &Value, text: &str) -> bool {
    let length = text.chars().count() as u64;
    match key {
        "minLength" => length >= of.as_u64().unwrap(),
        "maxLength" => length <= of.as_u64().unwrap(),
        // Patterns of tests are "^" and a start.
        "pattern" => text.starts_with(of.as_str().unwrap().strip_prefix('^').unwrap()),
        _ => true,
    }
}

fn number_keyword(key: &str, of: &Value, number: f64) -> bool {
    let of = of.as_f64();
    match key {
        "minimum" => number >= of.unwrap(),
        "maximum" => number <= of.unwrap(),
        "exclusiveMinimum" => number > of.unwrap(),
        "exclusiveMaximum" => number < of.unwrap(),
        "multipleOf" => {
            let times = number / of.unwrap();
            (times - times.round()).abs() < 1e-6
        }
        _ => true,
    }
}

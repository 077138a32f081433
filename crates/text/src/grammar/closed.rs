//! Schemas whose objects have the properties that they list, and no others.

use serde_json::{Map, Value};

use super::schema::MAX_DEPTH;

/// The schema with `additionalProperties: false` at each object that lists its properties and does not speak of others:
/// a small model would add properties without end.
///
/// Whatever is valid for it is valid for the schema as it was. So a schema with `allOf`, `oneOf` or `not`, or with
/// several of `properties`, `anyOf` and `$ref` next to each other, stays as it is.
pub fn closed_schema(mut schema: Value) -> Value {
    if !combines(&schema, MAX_DEPTH) {
        close(&mut schema, MAX_DEPTH);
    }
    schema
}

/// Whether several schemas within this one may apply to one value, or if it is too deep to tell.
fn combines(schema: &Value, depth: usize) -> bool {
    let within = |value: &Value| depth == 0 || combines(value, depth - 1);
    match schema {
        Value::Object(fields) => {
            let applied = ["properties", "$ref", "anyOf"].iter().filter(|key| fields.contains_key(**key)).count();
            applied > 1
                || ["allOf", "oneOf", "not"].iter().any(|key| fields.contains_key(*key))
                || fields.values().any(within)
        }
        Value::Array(values) => values.iter().any(within),
        _ => false,
    }
}

fn close(schema: &mut Value, depth: usize) {
    let Value::Object(fields) = schema else { return };
    if depth == 0 {
        return;
    }
    if lists_all(fields) {
        fields.insert("additionalProperties".to_owned(), false.into());
    }
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(schemas)) => {
                schemas.values_mut().for_each(|schema| close(schema, depth - 1));
            }
            ("anyOf" | "items" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(|schema| close(schema, depth - 1));
            }
            ("items" | "additionalProperties", schema) => close(schema, depth - 1),
            _ => {}
        }
    }
}

/// Whether `properties` names all that this schema speaks of.
fn lists_all(fields: &Map<String, Value>) -> bool {
    let Some(properties) = fields.get("properties").and_then(Value::as_object) else { return false };
    let others = ["additionalProperties", "patternProperties", "minProperties"];
    let required = fields.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let listed = |name: &Value| name.as_str().is_some_and(|name| properties.contains_key(name));
    !properties.is_empty() && !others.iter().any(|key| fields.contains_key(*key)) && required.iter().all(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_that_list_their_properties() {
        let open = json!({
            "type": "object",
            "properties": {
                "a": {"$ref": "#/$defs/x"},
                "b": {"items": {"properties": {"c": true}}},
                "d": {"anyOf": [{"properties": {"e": {}}, "required": ["e"]}, {"type": "null"}]},
                "f": {"type": "object"},
            },
            "$defs": {"x": {"type": "object", "properties": {"y": {"const": {"properties": {"z": 1}}}}}},
        });
        let mut expected = open.clone();
        for place in ["", "/$defs/x", "/properties/b/items", "/properties/d/anyOf/0"] {
            expected.pointer_mut(place).unwrap()["additionalProperties"] = json!(false);
        }
        assert_eq!(closed_schema(open), expected);
    }

    #[test]
    fn others_stay_as_they_are() {
        let one = json!({"properties": {"a": true}});
        for schema in [
            json!({"type": "object"}),
            json!({"properties": {}}),
            json!({"properties": {"a": true}, "additionalProperties": true}),
            json!({"properties": {"a": true}, "additionalProperties": {"type": "null"}}),
            json!({"properties": {"a": true}, "patternProperties": {"b": true}}),
            json!({"properties": {"a": true}, "minProperties": 2}),
            json!({"properties": {"a": true}, "required": ["b"]}),
            json!({"properties": {"a": true}, "anyOf": [{"required": ["a"]}, true]}),
            json!({"allOf": [one, {"properties": {"b": true}}]}),
            json!({"oneOf": [{"properties": {"a": true}, "required": ["a"]}, {"properties": {"b": true}}]}),
            json!({"properties": {"a": true}, "$ref": "#/$defs/x", "$defs": {"x": one}}),
            json!({"properties": {"a": {"not": one}}}),
            json!([one]),
            json!(true),
        ] {
            assert_eq!(closed_schema(schema.clone()), schema);
        }
        let mut deep = one;
        for _ in 0..1_000 {
            deep = json!({"items": deep});
        }
        assert_eq!(closed_schema(deep.clone()), deep);
    }
}

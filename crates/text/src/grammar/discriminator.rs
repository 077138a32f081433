//! OpenAPI's `discriminator`: a property whose value names the schema of an object.

use serde_json::{Map, Value, json};

use super::pointer;
use super::schema::Walk;

/// References and parts of `allOf` that are followed to the property.
const MAX_STEPS: usize = 64;

/// How a schema describes a property.
enum Property {
    /// It lists its values.
    Pinned,
    /// It has the property, with any value.
    Open,
    Absent,
}

impl Walk<'_> {
    /// The variants of `anyOf` or `oneOf`. Where a discriminator names a variant that has the property but does not list
    /// its values, the variant gets those that stand for it.
    pub(super) fn discriminated(&self, object: &Map<String, Value>, variants: &[Value]) -> Vec<Value> {
        let Some(name) = object.get("discriminator").and_then(|of| of["propertyName"].as_str()) else {
            return variants.to_vec();
        };
        let mapping = object.get("discriminator").and_then(|of| of["mapping"].as_object());
        let variant = |variant: &Value| {
            let Some(reference) = variant.get("$ref").and_then(Value::as_str) else { return variant.clone() };
            if !matches!(self.property(variant, name), Property::Open) {
                return variant.clone();
            }
            let own = reference.rsplit('/').next().unwrap_or(reference);
            let stands_for = |target: &Value| target == reference || target == own;
            let mapped = mapping.into_iter().flatten().filter(|(_, target)| stands_for(target)).map(|(value, _)| value);
            let mut values: Vec<&str> = mapped.map(String::as_str).collect();
            if values.is_empty() {
                values.push(own);
            }
            json!({"allOf": [variant, {"properties": {name: {"enum": values}}, "required": [name]}]})
        };
        variants.iter().map(variant).collect()
    }

    fn property(&self, schema: &Value, name: &str) -> Property {
        let mut found = Property::Absent;
        let mut rest = vec![schema];
        for _ in 0..MAX_STEPS {
            let Some(schema) = rest.pop() else { break };
            match schema["properties"].get(name) {
                Some(property) if property.get("const").or(property.get("enum")).is_some() => return Property::Pinned,
                Some(_) => found = Property::Open,
                None => {}
            }
            let pointer = schema["$ref"].as_str().and_then(pointer::of_reference);
            rest.extend(pointer.and_then(|pointer| pointer::find(self.root, &pointer)));
            rest.extend(schema["allOf"].as_array().into_iter().flatten());
        }
        found
    }
}

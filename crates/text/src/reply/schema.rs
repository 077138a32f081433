//! Values of arguments that a model writes as plain text: their types are in the tool's JSON schema.

use serde_json::{Map, Value as Json};

/// How many alternatives of one argument are looked at: a schema may refer to itself.
const MAX_ALTERNATIVES: usize = 64;

/// The JSON text of an argument, given the schemas of the tools' parameters.
///
/// A string, unless the schema allows another type and the text is JSON of that type.
pub(super) fn argument(schemas: &Map<String, Json>, tool: &str, key: &str, text: &str) -> String {
    let types = types_of(schemas, tool, key);
    // Some models write Python.
    let json = match text.trim() {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        json => json,
    };
    if types.iter().any(|&name| name != "string")
        && let Ok(value) = serde_json::from_str::<Json>(json)
        && types.iter().any(|name| name_matches(name, &value))
    {
        return json.to_owned();
    }
    Json::from(text).to_string()
}

/// Whether a tool has a parameter of this name. Any may be one of a tool whose parameters are not known.
pub(super) fn has_parameter(schemas: &Map<String, Json>, tool: &str, key: &str) -> bool {
    let properties = schemas.get(tool).and_then(|schema| schema.get("properties")).and_then(Json::as_object);
    properties.is_none_or(|properties| properties.contains_key(key))
}

/// The parameters that a tool requires.
pub(super) fn required<'s>(schemas: &'s Map<String, Json>, tool: &str) -> impl Iterator<Item = &'s str> {
    let required = schemas.get(tool).and_then(|schema| schema.get("required")).and_then(Json::as_array);
    required.into_iter().flatten().filter_map(Json::as_str)
}

/// Whether a tool is known to require no argument.
pub(super) fn needs_none(schemas: &Map<String, Json>, tool: &str) -> bool {
    schemas.contains_key(tool) && required(schemas, tool).next().is_none()
}

/// Whether an argument may be a string.
pub(super) fn allows_text(schemas: &Map<String, Json>, tool: &str, key: &str) -> bool {
    let types = types_of(schemas, tool, key);
    types.is_empty() || types.contains(&"string")
}

/// The names of the types that an argument may have; none if they are not known.
fn types_of<'s>(schemas: &'s Map<String, Json>, tool: &str, key: &str) -> Vec<&'s str> {
    let root = schemas.get(tool).unwrap_or(&Json::Null);
    let schema = root.get("properties").and_then(|properties| properties.get(key));
    schema.map(|schema| types(schema, root)).unwrap_or_default()
}

/// Whether a value is of a type, but for strings, which are written without quotes.
fn name_matches(name: &str, value: &Json) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_number().is_some_and(|n| n.as_f64().is_some_and(|n| n.fract() == 0.0)),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// The names of the types that a schema allows.
fn types<'s>(schema: &'s Json, root: &'s Json) -> Vec<&'s str> {
    let (mut types, mut schemas) = (Vec::new(), vec![schema]);
    let mut next = 0;
    while let Some(&schema) = schemas.get(next) {
        next += 1;
        match schema.get("type") {
            Some(Json::String(name)) => types.push(name.as_str()),
            Some(Json::Array(names)) => types.extend(names.iter().take(MAX_ALTERNATIVES).filter_map(Json::as_str)),
            _ => constants(schema).take(MAX_ALTERNATIVES).for_each(|value| types.push(type_of(value))),
        }
        let lists = ["anyOf", "oneOf", "allOf"].map(|key| schema.get(key).and_then(Json::as_array));
        let reference = schema.get("$ref").and_then(Json::as_str).and_then(|path| path.strip_prefix('#'));
        let referred = reference.and_then(|path| root.pointer(path));
        let more = lists.into_iter().flatten().flatten().chain(referred);
        schemas.extend(more.take(MAX_ALTERNATIVES - schemas.len()));
    }
    types
}

/// The values that a schema lists.
fn constants(schema: &Json) -> impl Iterator<Item = &Json> {
    let listed = schema.get("enum").and_then(Json::as_array).into_iter().flatten();
    listed.chain(schema.get("const"))
}

fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

//! Values of arguments that a model writes as plain text: their types are in the tool's JSON schema.

use serde_json::{Map, Value as Json};

use super::python;

/// How many alternatives of one argument are looked at: a schema may refer to itself.
const MAX_ALTERNATIVES: usize = 64;

/// The JSON text of an argument, given the schemas of the tools' parameters.
///
/// A string, unless the schema allows another type and the text is JSON of that type.
pub(super) fn argument(schemas: &Map<String, Json>, tool: &str, key: &str, text: &str) -> String {
    written(&types_of(schemas, tool, key), text)
}

/// The JSON text of a value that may have these types, of which a string is always one.
pub(super) fn written(types: &[&str], text: &str) -> String {
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
    // A template may print a list or an object as Python does.
    if types.iter().any(|name| ["array", "object"].contains(name))
        && let Some(json) = python::literal(json)
        && serde_json::from_str(&json).is_ok_and(|value: Json| types.iter().any(|name| name_matches(name, &value)))
    {
        return json;
    }
    Json::from(text).to_string()
}

/// A place in a tool's arguments: the schemas that a value there may follow.
#[derive(Debug)]
pub(super) struct Place<'s> {
    root: &'s Json,
    schemas: Vec<&'s Json>,
}

impl<'s> Place<'s> {
    /// The arguments of a tool.
    pub(super) fn of(schemas: &'s Map<String, Json>, tool: &str) -> Place<'s> {
        let root = schemas.get(tool).unwrap_or(&Json::Null);
        Place { root, schemas: alternatives(root, root) }
    }

    /// The value of a key of an object here.
    pub(super) fn field(&self, key: &str) -> Place<'s> {
        self.below(|schema| {
            let property = schema.get("properties").and_then(|properties| properties.get(key));
            property.or_else(|| schema.get("additionalProperties").filter(|other| other.is_object()))
        })
    }

    /// An item of a list here.
    pub(super) fn item(&self) -> Place<'s> {
        self.below(|schema| schema.get("items").filter(|items| items.is_object()))
    }

    fn below(&self, find: impl Fn(&'s Json) -> Option<&'s Json>) -> Place<'s> {
        let found = self.schemas.iter().filter_map(|schema| find(schema));
        let schemas = found.flat_map(|schema| alternatives(schema, self.root)).take(MAX_ALTERNATIVES);
        Place { root: self.root, schemas: schemas.collect() }
    }

    /// The names of the types that a value here may have; none if they are not known.
    pub(super) fn types(&self) -> Vec<&'s str> {
        self.schemas.iter().flat_map(|schema| own_types(schema)).collect()
    }
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
    alternatives(schema, root).into_iter().flat_map(own_types).collect()
}

/// A schema, and those that it combines or refers to.
fn alternatives<'s>(schema: &'s Json, root: &'s Json) -> Vec<&'s Json> {
    let mut schemas = vec![schema];
    let mut next = 0;
    while let Some(&schema) = schemas.get(next) {
        next += 1;
        let lists = ["anyOf", "oneOf", "allOf"].map(|key| schema.get(key).and_then(Json::as_array));
        let reference = schema.get("$ref").and_then(Json::as_str).and_then(|path| path.strip_prefix('#'));
        let referred = reference.and_then(|path| root.pointer(path));
        let more = lists.into_iter().flatten().flatten().chain(referred);
        schemas.extend(more.take(MAX_ALTERNATIVES - schemas.len()));
    }
    schemas
}

/// The names of the types that a schema states itself.
fn own_types(schema: &Json) -> Vec<&str> {
    match schema.get("type") {
        Some(Json::String(name)) => vec![name],
        Some(Json::Array(names)) => names.iter().take(MAX_ALTERNATIVES).filter_map(Json::as_str).collect(),
        _ => constants(schema).take(MAX_ALTERNATIVES).map(type_of).collect(),
    }
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

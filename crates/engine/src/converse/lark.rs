//! Texts with control tokens in Lark, and the values of arguments as their schemas allow them.

use gristmill_text::template::Tool;
use gristmill_text::tokenizer::Tokenizer;
use serde_json::{Map, Value as Json};

/// The control tokens of a vocabulary.
pub(super) struct Marks<'t>(Box<Control<'t>>);

/// Returns the control token of a mark that is one.
type Control<'t> = dyn Fn(&str) -> Option<u32> + 't;

/// A part of a text.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'t> {
    Text(&'t str),
    Token(u32),
}

/// `<` and its like, of DeepSeek and of Kimi too: a control token starts and ends with one.
const BRACKETS: [char; 6] = ['<', '>', '[', ']', '｜', '|'];
/// Brackets of the control token with most of them.
const MAX_BRACKETS: usize = 8;

impl<'t> Marks<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> Marks<'t> {
        Marks::of(|mark| tokenizer.tokens_of_bytes(mark.as_bytes()).find(|&id| tokenizer.is_special(id)))
    }

    /// `control` returns the control token of a mark that is one.
    pub(super) fn of(control: impl Fn(&str) -> Option<u32> + 't) -> Marks<'t> {
        Marks(Box::new(control))
    }

    /// The parts of a text, in which marks may be control tokens.
    pub(super) fn parts<'s>(&self, text: &'s str) -> Vec<Part<'s>> {
        let mut parts = Vec::new();
        let (mut rest, mut plain) = (text, 0);
        // A control token can have other brackets within, as that of MiniMax M3 has.
        while let Some(open) = rest[plain..].find(BRACKETS).map(|at| plain + at) {
            let closes = rest[open..].match_indices(BRACKETS).map(|(at, text)| open + at + text.len());
            match closes.take(MAX_BRACKETS).filter_map(|close| Some((close, (self.0)(&rest[open..close])?))).last() {
                Some((close, id)) => {
                    parts.extend((open > 0).then(|| Part::Text(&rest[..open])));
                    parts.push(Part::Token(id));
                    (rest, plain) = (&rest[close..], 0);
                }
                None => plain = open + rest[open..].chars().next().map_or(1, char::len_utf8),
            }
        }
        parts.extend((!rest.is_empty()).then_some(Part::Text(rest)));
        parts
    }

    /// A text in Lark.
    pub(super) fn terminals(&self, text: &str) -> String {
        in_lark(&self.parts(text))
    }

    /// A rule of any text before this mark, and the mark. The text has none of these other marks.
    pub(super) fn text_before(&self, rule: &str, mark: &str, others: &[&str]) -> String {
        let parts = self.parts(mark);
        let others: Vec<String> =
            others.iter().filter(|other| !other.trim().is_empty()).map(|other| regex(other.trim())).collect();
        let text = match others.is_empty() {
            true => "/(?s:.*)/".to_owned(),
            false => format!("/(?s:.*)/ & ~/(?s:.*)({})(?s:.*)/", others.join("|")),
        };
        let terminal = rule.to_uppercase();
        match parts.as_slice() {
            // The shortest text: it ends with the first mark.
            [Part::Text(mark)] => format!("{rule}[lazy]: {terminal} {}\n{terminal}: {text}\n", quoted(mark)),
            // A control token ends the text, and what precedes the token in the mark ends it too.
            [Part::Text(before), after @ ..] => {
                format!("{rule}: {terminal} {}\n{terminal}: ({text}) {}\n", in_lark(after), quoted(before))
            }
            after => format!("{rule}: {terminal} {}\n{terminal}: {text}\n", in_lark(after)),
        }
    }
}

fn in_lark(parts: &[Part]) -> String {
    let terminal = |part: &Part| match part {
        Part::Text(text) => quoted(text),
        Part::Token(id) => format!("<[{id}]>"),
    };
    parts.iter().map(terminal).collect::<Vec<_>>().join(" ")
}

/// A text as a string in Lark.
pub(super) fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}

/// A text as a part of a regular expression between slashes.
fn regex(text: &str) -> String {
    text.chars().fold(String::new(), |mut regex, c| {
        match c {
            '\n' => regex.push_str("\\n"),
            // Others have a meaning with a backslash, such as the end of a word.
            c if r"\.+*?()|[]{}^$/".contains(c) => regex.extend(['\\', c]),
            c => regex.push(c),
        }
        regex
    })
}

/// The length of rules without the schemas in them.
pub(super) fn len_beside_schemas(rules: &str) -> usize {
    let beside = |part: &str| {
        let mut schema = serde_json::Deserializer::from_str(part).into_iter::<Json>();
        let is_schema = schema.next().is_some_and(|schema| schema.is_ok());
        part.len() - if is_schema { schema.byte_offset() } else { 0 }
    };
    rules.split("%json").map(beside).sum()
}

/// The schema of a tool's arguments.
pub(super) fn parameters(tool: &Tool) -> Json {
    tool.parameters.clone().unwrap_or_default()
}

/// An argument of a tool.
#[derive(Debug, PartialEq)]
pub(super) struct Argument<'t> {
    pub(super) key: &'t str,
    pub(super) is_required: bool,
    pub(super) value: Written,
}

/// How an argument is written where strings are not JSON.
#[derive(Debug, PartialEq)]
pub(super) enum Written {
    /// Any text.
    Text,
    /// One of these texts.
    Texts(Vec<String>),
    /// JSON that is no string, of this type, and follows this schema.
    Json(&'static str, Json),
}

/// What says nothing about a value.
const ANNOTATIONS: [&str; 10] = [
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "$schema",
];

/// How deeply references and alternatives may nest.
const MAX_DEPTH: usize = 16;

/// The arguments of a tool, those that are required first; `None` if its schema wants what only JSON can follow.
pub(super) fn arguments(tool: &Tool) -> Option<Vec<Argument<'_>>> {
    fields(tool.parameters.as_ref()?)
}

/// The fields of an object with this schema, likewise.
pub(super) fn fields(schema: &Json) -> Option<Vec<Argument<'_>>> {
    let root = schema.as_object()?;
    let known = ["type", "properties", "required", "additionalProperties", "$defs", "definitions"];
    let is_known = |key: &String| [&known[..], &ANNOTATIONS].concat().contains(&key.as_str()) || key.starts_with("x-");
    if !root.keys().all(is_known) {
        return None;
    }
    let properties = match root.get("properties") {
        Some(properties) => properties.as_object()?,
        None if root.get("additionalProperties") == Some(&Json::Bool(false)) => return Some(Vec::new()),
        // Any arguments, which have no names here.
        None => return None,
    };
    let required: Vec<&str> = match root.get("required") {
        Some(required) => required.as_array()?.iter().map(Json::as_str).collect::<Option<_>>()?,
        None => Vec::new(),
    };
    if !required.iter().all(|key| properties.contains_key(*key)) {
        return None;
    }
    let mut arguments: Vec<Argument> = Vec::with_capacity(properties.len());
    for (key, schema) in properties {
        // A key is written as it is.
        if key.is_empty() || key.contains(['<', '>', '"', '\'', '\\', '\n', '{', '}', '=', ':', ',', ' ']) {
            return None;
        }
        let is_required = required.contains(&key.as_str());
        arguments.push(Argument { key, is_required, value: written(schema, root, MAX_DEPTH)? });
    }
    arguments.sort_by_key(|argument| !argument.is_required);
    Some(arguments)
}

/// The items of a list with this schema; `None` if only JSON can follow it.
pub(super) fn items(schema: &Json) -> Option<Written> {
    let root = schema.as_object()?;
    let is_known =
        |key: &String| ["type", "items", "$defs"].contains(&key.as_str()) || ANNOTATIONS.contains(&key.as_str());
    written(root.get("items").filter(|_| root.keys().all(is_known))?, root, MAX_DEPTH)
}

fn written(schema: &Json, root: &Map<String, Json>, depth: usize) -> Option<Written> {
    let fields = match schema {
        Json::Bool(true) => return Some(Written::Text),
        Json::Object(fields) => fields,
        _ => return None,
    };
    let depth = depth.checked_sub(1)?;
    let mut asserting = fields.iter().filter(|(key, _)| !ANNOTATIONS.contains(&key.as_str()) && !key.starts_with("x-"));
    let json = |kind: &'static str| Some(Written::Json(kind, with_definitions(schema, root)?));
    if let Some(target) = fields.get("$ref") {
        let schema = root.get("$defs").filter(|_| asserting.all(|(key, _)| key == "$ref"));
        let name = target.as_str()?.strip_prefix("#/$defs/")?;
        return written(schema?.get(name)?, root, depth);
    }
    if let Some(constants) =
        fields.get("enum").and_then(Json::as_array).cloned().or_else(|| Some(vec![fields.get("const")?.clone()]))
    {
        let texts: Option<Vec<String>> = constants.iter().map(|value| value.as_str().map(str::to_owned)).collect();
        let is_plain = asserting
            .all(|(key, value)| ["enum", "const"].contains(&key.as_str()) || (key == "type" && value == "string"));
        return match (texts, constants.first()) {
            (Some(texts), Some(_)) if is_plain => Some(Written::Texts(texts)),
            (None, Some(first)) if constants.iter().all(|value| !value.is_string()) => json(type_of(first)),
            _ => None,
        };
    }
    if let Some(alternatives) = fields.get("anyOf") {
        let all: Vec<Written> =
            alternatives.as_array()?.iter().map(|schema| written(schema, root, depth)).collect::<Option<_>>()?;
        let is_only = asserting.all(|(key, _)| key == "anyOf");
        return match all.iter().find_map(|one| if let Written::Json(kind, _) = one { Some(*kind) } else { None }) {
            Some(kind) if all.iter().all(|one| matches!(one, Written::Json(..))) => json(kind),
            // Text of another type is read as that type, which must then be valid too.
            _ if is_only && all.contains(&Written::Text) && all.iter().all(is_any_of_its_type) => Some(Written::Text),
            _ => None,
        };
    }
    match fields.get("type") {
        None if asserting.next().is_none() => Some(Written::Text),
        None => None,
        Some(Json::String(kind)) if kind == "string" => {
            asserting.all(|(key, _)| key == "type").then_some(Written::Text)
        }
        Some(Json::String(kind)) => json(TYPES.into_iter().find(|known| known == kind)?),
        Some(Json::Array(kinds)) => match kinds.iter().any(|kind| kind == "string") {
            true => asserting.all(|(key, _)| key == "type").then_some(Written::Text),
            false => json(TYPES.into_iter().find(|known| kinds.first().is_some_and(|kind| kind == known))?),
        },
        Some(_) => None,
    }
}

const TYPES: [&str; 6] = ["null", "boolean", "number", "integer", "array", "object"];

/// Whether a schema allows all values of its type.
fn is_any_of_its_type(written: &Written) -> bool {
    match written {
        Written::Text => true,
        Written::Texts(_) => false,
        Written::Json(_, schema) => schema.as_object().is_some_and(|fields| {
            fields.keys().all(|key| key == "type" || key == "$defs" || ANNOTATIONS.contains(&key.as_str()))
        }),
    }
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

/// A schema by itself, with the definitions that it refers to; `None` if it refers to another place.
fn with_definitions(schema: &Json, root: &Map<String, Json>) -> Option<Json> {
    let refers = |text: &str| text.contains("\"$ref\"");
    let mut schema = schema.clone();
    let text = schema.to_string();
    if refers(&text) {
        let definitions = root.get("$defs")?;
        let all = [text, definitions.to_string()].concat();
        if all.matches("\"$ref\"").count() != all.matches("\"$ref\":\"#/$defs/").count()
            || schema.get("$defs").is_some()
        {
            return None;
        }
        schema.as_object_mut()?.insert("$defs".to_owned(), definitions.clone());
    }
    Some(schema)
}

/// The rules of a list of arguments with commas between them: those that are required come first. `write` writes an
/// argument. The first rule has this name.
pub(super) fn separated(name: &str, comma: &str, written: &[(bool, String)]) -> String {
    let mut rules = String::new();
    // One rule for each argument that may be the first, and one for each that follows another.
    for (index, (is_required, argument)) in written.iter().enumerate() {
        let first = if index == 0 { name.to_owned() } else { format!("{name}_f{index}") };
        let next = index + 1;
        let after = if next == written.len() { String::new() } else { format!("{name}_a{next}") };
        let other = if next == written.len() { "\"\"".to_owned() } else { format!("{name}_f{next}") };
        let skip = if *is_required { String::new() } else { format!(" | {other}") };
        rules += &format!("{first}: {argument} {after}{skip}\n");
        if index > 0 {
            let one = format!("{} {argument} {after}", quoted(comma));
            let skip = match (is_required, after.is_empty()) {
                (true, _) => String::new(),
                (false, true) => " | \"\"".to_owned(),
                (false, false) => format!(" | {after}"),
            };
            rules += &format!("{name}_a{index}: {one}{skip}\n");
        }
    }
    if written.is_empty() { format!("{name}: \"\"\n") } else { rules }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn control_tokens_in_texts() {
        let marks = Marks::of(|mark| match mark {
            "<|message|>" => Some(7),
            "]<]minimax[>[" => Some(8),
            "｜DSML｜" => Some(9),
            _ => None,
        });
        for (text, expected) in [
            ("<|message|>", "<[7]>"),
            ("<|x|>a<|message|>to=\"", "\"<|x|>a\" <[7]> \"to=\\\"\""),
            ("<tool_call>\n", "\"<tool_call>\\n\""),
            ("]<]minimax[>[<tool_call>\n", "<[8]> \"<tool_call>\\n\""),
            ("</｜DSML｜invoke>", "\"</\" <[9]> \"invoke>\""),
            ("", ""),
        ] {
            assert_eq!(marks.terminals(text), expected);
        }
    }

    #[test]
    fn how_arguments_are_written() {
        let root = json!({"$defs": {"color": {"enum": ["red", "green"]}, "n": {"type": "integer"}}});
        let root = root.as_object().expect("an object");
        let of = |schema: Json| written(&schema, root, MAX_DEPTH);
        for schema in [
            json!({}),
            json!(true),
            json!({"type": "string", "description": "x"}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null}),
            json!({"type": ["string", "integer"]}),
        ] {
            assert_eq!(of(schema.clone()), Some(Written::Text), "{schema}");
        }
        let colors = || Some(Written::Texts(vec!["red".to_owned(), "green".to_owned()]));
        assert_eq!(of(json!({"$ref": "#/$defs/color"})), colors());
        assert_eq!(of(json!({"type": "string", "enum": ["red", "green"]})), colors());
        for (schema, kind) in [
            (json!({"type": "integer", "minimum": 1}), "integer"),
            (json!({"const": 3}), "number"),
            (json!({"type": ["array", "null"]}), "array"),
        ] {
            assert_eq!(of(schema.clone()), Some(Written::Json(kind, schema)));
        }
        let list = json!({"type": "array", "items": {"$ref": "#/$defs/n"}});
        let Some(Written::Json("array", with)) = of(list) else { panic!() };
        assert_eq!(with["$defs"], root["$defs"]);
        for schema in [
            json!({"type": "string", "pattern": "a"}),
            json!({"enum": ["3", 3]}),
            json!({"type": "string", "enum": ["a"], "maxLength": 2}),
            json!({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]}),
            json!({"anyOf": [{"enum": ["a"]}, {"type": "null"}]}),
            json!({"allOf": [{}]}),
            json!(false),
            json!({"type": "array", "items": {"$ref": "#/properties/a"}}),
        ] {
            assert_eq!(of(schema.clone()), None, "{schema}");
        }
    }
}

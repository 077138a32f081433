//! The grammar of calls in nested tags: of MiniMax M3.

use gristmill_text::template::Tool;
use serde_json::Value as Json;

use super::call;
use super::lark::{self, Argument, Marks, Written, quoted};

/// Before every tag.
const TOKEN: &str = "]<]minimax[>[";
/// How deeply values may nest.
const MAX_DEPTH: usize = 16;

/// The rule `call` after the text that opens a call, and those that it refers to. A call is an object of JSON if only
/// that can follow the schema of its tool.
pub(super) fn rules(tools: &[Tool], marks: &Marks) -> String {
    let token = marks.terminals(TOKEN);
    let mut calls = Vec::new();
    let mut rules = String::new();
    for (index, tool) in tools.iter().enumerate() {
        calls.push(format!("call_{index}"));
        let arguments = lark::arguments(tool).and_then(|arguments| elements(&arguments, &token, MAX_DEPTH));
        rules += &match arguments {
            Some(arguments) => {
                let start = quoted(&format!("<invoke name=\"{}\">", tool.name));
                let end = format!("{token} \"</invoke>\" NL {token} \"</tool_call>\"");
                format!("call_{index}: {token} {start} {arguments} {end}\n")
            }
            None => {
                let schema = call::object("name", "arguments", std::slice::from_ref(tool), "");
                format!("call_{index}: %json {schema}\n")
            }
        };
    }
    format!("call: {}\nNL: /\\n?/\n{rules}{}", calls.join(" | "), marks.text_before("text", TOKEN, &[TOKEN]))
}

/// Elements of arguments or of fields.
fn elements(fields: &[Argument], token: &str, depth: usize) -> Option<String> {
    let element = |field: &Argument| {
        let element = element(field.key, &field.value, token, depth)?;
        Some(if field.is_required { element } else { format!("({element})?") })
    };
    fields.iter().map(element).collect::<Option<Vec<_>>>().map(|all| all.join(" "))
}

fn element(name: &str, value: &Written, token: &str, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    let [start, end] = [format!("<{name}>"), format!("</{name}>")].map(|tag| quoted(&tag));
    let value = match value {
        // The token before the next tag ends the text.
        Written::Text => return Some(format!("{token} {start} text {end}")),
        Written::Texts(texts) => format!("({})", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" | ")),
        Written::Json("array", schema) => format!("({})*", element("item", &lark::items(schema)?, token, depth)?),
        Written::Json("object", schema) => elements(&lark::fields(schema)?, token, depth)?,
        Written::Json(_, schema) => json(schema)?,
    };
    Some(format!("{token} {start} {value} {token} {end}"))
}

/// A value that is neither a list nor an object.
fn json(schema: &Json) -> Option<String> {
    let can_nest = |kind: &Json| kind == "array" || kind == "object";
    let is_scalar = match schema.get("type") {
        Some(Json::Array(kinds)) => !kinds.iter().any(can_nest),
        Some(kind) => !can_nest(kind),
        None => schema.get("const").or(schema.get("enum")).is_some(),
    };
    is_scalar.then(|| format!("%json {schema}"))
}

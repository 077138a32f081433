//! The grammar of a call in a list, with literals of Python.

use gristmill_text::template::Tool;
use serde_json::json;

use super::call;
use super::lark::{self, Argument, Written, quoted, separated};

/// The rule `call` after the text that opens a list, and those that it refers to. A call is an object of JSON if only
/// that can follow the schema of its tool.
pub(super) fn rules(tools: &[Tool]) -> String {
    let mut calls = Vec::new();
    let mut rules = String::new();
    for (index, tool) in tools.iter().enumerate() {
        calls.push(format!("call_{index}"));
        match lark::arguments(tool) {
            Some(arguments) => {
                let arguments: Vec<_> = arguments.iter().map(|one| (one.is_required, argument(one))).collect();
                let name = format!("arguments_{index}");
                rules += &format!("call_{index}: {} {name} \")\"\n", quoted(&format!("{}(", tool.name)));
                rules += &separated(&name, ", ", &arguments);
            }
            None => {
                let schema = call::object("name", "arguments", std::slice::from_ref(tool), "");
                rules += &format!("call_{index}: %json {schema}\n");
            }
        }
    }
    let string = r"STRING: /'([^'\\\n]|\\['\\n])*'/";
    format!("call: \"[\" ({}) \"]\"\n{rules}{string}\n", calls.join(" | "))
}

fn argument(argument: &Argument) -> String {
    let literal = |text: &String| {
        let text = text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
        quoted(&format!("'{text}'"))
    };
    let value = match &argument.value {
        Written::Text => "STRING".to_owned(),
        Written::Texts(texts) => format!("({})", texts.iter().map(literal).collect::<Vec<_>>().join(" | ")),
        Written::Json("boolean", schema) if *schema == json!({"type": "boolean"}) => {
            "(\"True\" | \"False\")".to_owned()
        }
        Written::Json(_, schema) => format!("%json {schema}"),
    };
    format!("{} {value}", quoted(&format!("{}=", argument.key)))
}

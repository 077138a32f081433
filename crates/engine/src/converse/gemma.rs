//! The grammar of a call of Gemma 4: strings between marks, bare keys, other values as JSON.

use gristmill_text::template::Tool;

use super::call;
use super::lark::{self, Argument, Marks, Written, quoted, separated};

/// Around a string.
const QUOTE: &str = "<|\"|>";

/// The rule `call` after the text that opens a call, and those that it refers to. A call is an object of JSON if only
/// that can follow the schema of its tool.
pub(super) fn rules(tools: &[Tool], marks: &Marks) -> String {
    let mut calls = Vec::new();
    let mut rules = String::new();
    for (index, tool) in tools.iter().enumerate() {
        calls.push(format!("call_{index}"));
        match lark::arguments(tool) {
            Some(arguments) => {
                let arguments: Vec<_> = arguments.iter().map(|one| (one.is_required, argument(one, marks))).collect();
                let name = format!("arguments_{index}");
                rules += &format!("call_{index}: {} {name} \"}}\"\n", quoted(&format!("call:{}{{", tool.name)));
                rules += &separated(&name, ",", &arguments);
            }
            None => {
                let schema = call::object("name", "arguments", std::slice::from_ref(tool), "");
                rules += &format!("call_{index}: %json {schema}\n");
            }
        }
    }
    format!("call: {}\n{rules}{}", calls.join(" | "), marks.text_before("text", QUOTE, &[QUOTE]))
}

fn argument(argument: &Argument, marks: &Marks) -> String {
    let quote = marks.terminals(QUOTE);
    let value = match &argument.value {
        Written::Text => format!("{quote} text"),
        Written::Texts(texts) => {
            let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("{quote} ({}) {quote}", texts.join(" | "))
        }
        Written::Json(_, schema) => format!("%json {schema}"),
    };
    format!("{} {value}", quoted(&format!("{}:", argument.key)))
}

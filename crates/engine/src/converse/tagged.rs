//! The grammar of calls between tags: strings are written as they are, other values as JSON.

use gristmill_text::reply::{Lines, Tags, Types};
use gristmill_text::template::Tool;

use super::call;
use super::lark::{self, Argument, Marks, Written, quoted};

/// The rule `call` after the text that opens a call, and those that it refers to. A call is an object of JSON if only
/// that can follow the schema of its tool.
pub(super) fn rules(tags: &Tags, tools: &[Tool], marks: &Marks) -> String {
    let mut calls = Vec::new();
    let mut rules = String::new();
    for (index, tool) in tools.iter().enumerate() {
        let own = lark::arguments(tool)
            .and_then(|arguments| arguments.iter().map(|one| argument(tags, marks, one)).collect::<Option<Vec<_>>>());
        calls.push(format!("call_{index}"));
        match own {
            Some(arguments) => {
                let start = [tags.function, &tool.name, &after_name(tags)].concat();
                let start = marks.terminals(&start);
                rules += &format!("call_{index}: {start} NL {} {}\n", arguments.join(" "), end(tags, marks));
            }
            None => {
                let schema = call::object("name", "arguments", std::slice::from_ref(tool), "");
                rules += &format!("call_{index}: %json {schema}\n");
            }
        }
    }
    let line = if tags.lines == Lines::Always { "\n" } else { "" };
    let others = others(tags);
    let text = marks.text_before("text", &[line, tags.value_end].concat(), &others);
    let quote = tags.quotes.map(|[_, close]| {
        marks.text_before("data", &[close, tags.value_end].concat(), &others) + "short: SHORT\nSHORT: /[^<&\\n]*/\n"
    });
    format!("call: {}\nNL: /\\n?/\n{rules}{text}{}", calls.join(" | "), quote.unwrap_or_default())
}

/// The text between the name and the first argument.
fn after_name(tags: &Tags) -> String {
    let number = if tags.number_end.is_empty() { String::new() } else { format!("1{}", tags.number_end) };
    [tags.name_end.unwrap_or_default(), &number].concat()
}

/// The end of a call, and of all calls.
fn end(tags: &Tags, marks: &Marks) -> String {
    let end = marks.terminals(tags.end);
    if tags.end == tags.close { end } else { format!("{end} NL {}", marks.terminals(tags.close)) }
}

/// The tags that a text in a required call does not have, so that it cannot be read in two ways.
fn others(tags: &Tags) -> Vec<&'static str> {
    let first = if tags.function.is_empty() { tags.open } else { tags.function };
    vec![first, tags.key, tags.value_end, tags.end, tags.close]
}

/// An argument in Lark; `None` if it cannot be written between tags.
fn argument(tags: &Tags, marks: &Marks, argument: &Argument) -> Option<String> {
    let line = if tags.lines == Lines::Always { "\n" } else { "" };
    let start = |kind: &str| {
        let name = [tags.key, argument.key, tags.key_end].concat();
        match tags.types {
            Some(_) => marks.terminals(&[&*name, kind, tags.value, line].concat()),
            None if tags.value.is_empty() => marks.terminals(&[&*name, line].concat()),
            None => format!("{} NL {}", marks.terminals(&name), marks.terminals(&[tags.value, line].concat())),
        }
    };
    let end = marks.terminals(&[line, tags.value_end].concat());
    let of_text = tags.types.map_or("", Types::of_text);
    let written = match (&argument.value, tags.quotes) {
        (Written::Text, None) => format!("{} text", start(of_text)),
        (Written::Text, Some([open, _])) => {
            format!("{} (short {end} | {} data)", start(of_text), marks.terminals(open))
        }
        (Written::Texts(texts), _) => {
            let is_plain = |text: &String| !text.contains(['<', '&', '\n']) && text.trim() == text;
            if !texts.iter().all(is_plain) {
                return None;
            }
            let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("{} ({}) {end}", start(of_text), texts.join(" | "))
        }
        (Written::Json(kind, schema), _) => {
            let kind = match tags.types {
                Some(Types::IsString) => "false",
                Some(Types::Name) if *kind == "integer" => "number",
                _ => kind,
            };
            let space = if line.is_empty() { "NL " } else { "" };
            format!("{} %json {schema} {space}{end}", start(kind))
        }
    };
    Some(if argument.is_required { format!("{written} NL") } else { format!("({written} NL)?") })
}

//! Replies as models of each form write them, in parts, so that each mark can be damaged.

use super::*;
use serde_json::{Map, Value as Json};

/// A part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// A mark.
    Mark(String),
    /// A mark before which white space may stand.
    Loose(String),
    /// A name, a value or other text.
    Text(String),
}

impl Part {
    pub(super) fn text(&self) -> &str {
        match self {
            Part::Mark(text) | Part::Loose(text) | Part::Text(text) => text,
        }
    }
}

/// A call as it is meant.
pub(super) type Call = (String, Map<String, Json>);

/// A form: a template that shows it, the marks of reasoning unless it writes messages, the marks that values are tried
/// with, and how it writes calls.
pub(super) struct Form {
    pub(super) template: &'static str,
    pub(super) think: Option<(&'static str, &'static str)>,
    pub(super) marks: &'static [&'static str],
    pub(super) write: fn(&mut Vec<Part>, &[Call]),
}

/// How a form writes messages: before and after reasoning, before and after an answer, and between messages.
pub(super) struct Messages {
    pub(super) thought: [&'static str; 2],
    pub(super) answer: [&'static str; 2],
    pub(super) between: &'static str,
}

impl Form {
    /// The messages of a form that writes them.
    pub(super) fn messages(&self) -> Option<Messages> {
        match self.template {
            HARMONY => Some(Messages {
                thought: ["<|channel|>analysis<|message|>", "<|end|><|start|>assistant"],
                answer: ["<|channel|>final<|message|>", "<|end|>"],
                between: "<|start|>assistant",
            }),
            MUSE => Some(Messages {
                thought: [" to=self<|message|>", "<|eom|>"],
                answer: ["<|start|>assistant to=user<|message|>", "<|eom|>"],
                between: "",
            }),
            _ => None,
        }
    }
}

const THINK: Option<(&str, &str)> = Some(("<think>", "</think>"));
const JSON: &[&str] = &["</tool_call>", "<tool_call>", "</think>", "\"}", "{\"name\": \"a\"", "]"];

pub(super) const FORMS: [Form; 28] = [
    Form { template: QWEN, think: THINK, marks: JSON, write: hermes },
    Form {
        template: CODER,
        think: THINK,
        marks: &[
            "<tool_call>.",
            ". </tool_call>",
            "see <function=f>",
            "</function>",
            "see <parameter=k>",
            "see <parameter=path>",
            "</parameter>",
            "</think>",
        ],
        write: |parts, calls| tagged(parts, calls, ["<tool_call>", "</tool_call>"], CODER_TAGS, "\n"),
    },
    Form {
        template: SEED,
        think: Some(("<seed:think>", "</seed:think>")),
        marks: &[
            "<seed:tool_call>.",
            ". </seed:tool_call>",
            "see <function=f>",
            "</function>",
            "see <parameter=path>",
            "</parameter>",
        ],
        write: |parts, calls| tagged(parts, calls, ["<seed:tool_call>", "</seed:tool_call>"], CODER_TAGS, ""),
    },
    Form {
        template: MINIMAX,
        think: THINK,
        marks: &[
            "<minimax:tool_call>.",
            ". </minimax:tool_call>",
            "see <invoke name=\"f\">",
            "</invoke>",
            "see <parameter name=\"path\">",
            "</parameter>",
        ],
        write: minimax,
    },
    Form {
        template: M3,
        think: Some(("<mm:think>", "</mm:think>")),
        marks: &["<tool_call>", "</tool_call>", "</invoke>", "<path>", "</path>", "</item>"],
        write: minimax_m3,
    },
    Form {
        template: GLM,
        think: THINK,
        marks: &[
            "<tool_call> !",
            ". </tool_call>",
            "</arg_value>",
            "see <arg_key>",
            "see <arg_key>path</arg_key><arg_value>",
        ],
        write: glm,
    },
    Form {
        template: GEMMA4,
        think: Some(("<|channel>thought", "<channel|>")),
        marks: &["x<|tool_call>", "x<tool_call|>", "call:f{", "}", ",path:"],
        write: gemma4,
    },
    Form {
        template: COMMAND,
        think: Some(("<|START_THINKING|>", "<|END_THINKING|>")),
        marks: &["<|START_ACTION|>", "<|END_ACTION|>", "<|START_TEXT|>", "]", "\"}"],
        write: |parts, calls| listed(parts, calls, "<|START_ACTION|>", "tool_name", "parameters", "<|END_ACTION|>"),
    },
    Form {
        template: MISTRAL,
        think: THINK,
        marks: &["[TOOL_CALLS]", "[ARGS]", "]", "\"}"],
        write: |parts, calls| listed(parts, calls, "[TOOL_CALLS]", "name", "arguments", ""),
    },
    Form {
        template: MAGISTRAL,
        think: Some(("[THINK]", "[/THINK]")),
        marks: &["x[TOOL_CALLS]", "[ARGS]", "[/THINK]", "}"],
        write: named,
    },
    Form {
        template: FENCED,
        think: THINK,
        marks: &["x<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜tool▁sep｜>", "```", "}"],
        write: fenced,
    },
    Form {
        template: DEEPSEEK,
        think: THINK,
        marks: &["x<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜tool▁sep｜>", "}"],
        write: |parts, calls| {
            let marks = ["<｜tool▁call▁begin｜>", "", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"];
            section(parts, calls, ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"], marks);
        },
    },
    Form {
        template: KIMI,
        think: THINK,
        marks: &["x<|tool_call_end|>", "<|tool_calls_section_end|>", "<|tool_call_argument_begin|>", "}"],
        write: |parts, calls| {
            let marks = ["<|tool_call_begin|>", "functions.", "<|tool_call_argument_begin|>", "<|tool_call_end|>"];
            section(parts, calls, ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"], marks);
        },
    },
    Form {
        template: HY3,
        think: Some(("<think:opensource>", "</think:opensource>")),
        marks: &["<tool_calls:opensource> !", "</arg_value:opensource>", "see <arg_key:opensource>"],
        write: hy3,
    },
    Form {
        template: ERNIE,
        think: THINK,
        marks: &["</tool_call>", "<tool_call>", "<response>", "</response>", "\"}", "]"],
        write: hermes,
    },
    Form {
        template: HUNYUAN,
        think: THINK,
        marks: &["<tool_calls>", "</tool_calls>", "</answer>", "]", "\"}"],
        write: |parts, calls| listed(parts, calls, "<tool_calls>", "name", "arguments", "</tool_calls>"),
    },
    Form {
        template: MUSE,
        think: None,
        marks: &[
            "<atem:function_calls>.",
            ". </atem:function_calls>",
            "see <atem:invoke name=\"f\">",
            "</atem:invoke>",
            "see <atem:parameter name=\"path\">",
            "</atem:parameter>",
        ],
        write: muse,
    },
    Form {
        template: HARMONY,
        think: None,
        marks: &["<|call|>", "<|end|>", "<|channel|>", "<|message|>", "}"],
        write: harmony,
    },
    Form { template: LLAMA, think: THINK, marks: &["<|python_tag|>", ";", "\"}"], write: llama },
    Form {
        template: LLAMA4,
        think: THINK,
        marks: &["<|python_start|>", "<|python_end|>", ")", "']", "path="],
        write: |parts, calls| python(parts, calls, "<|python_start|>", "<|python_end|>"),
    },
    Form {
        template: LFM2,
        think: THINK,
        marks: &["<|tool_call_start|>", "<|tool_call_end|>", ")", "')", ", path="],
        write: |parts, calls| python(parts, calls, "<|tool_call_start|>", "<|tool_call_end|>"),
    },
    Form { template: LLAMA, think: THINK, marks: &["<|python_tag|>", ";"], write: tag_of_llama },
    Form {
        template: NEMOTRON,
        think: THINK,
        marks: &["<TOOLCALL>", "</TOOLCALL>", "]", "\"}"],
        write: |parts, calls| listed(parts, calls, "<TOOLCALL>", "name", "arguments", "</TOOLCALL>"),
    },
    Form {
        template: APERTUS,
        think: Some(("<|inner_prefix|>", "<|inner_suffix|>")),
        marks: &["<|tools_prefix|>", "<|tools_suffix|>", "]", "\"}"],
        write: keyed,
    },
    Form {
        template: MINIMAX_M1,
        think: THINK,
        marks: &["<tool_calls>", "</tool_calls>", "\"}", "{\"name\": \"a\""],
        write: |parts, calls| {
            parts.push(loose("<tool_calls>"));
            for call in calls {
                parts.push(text("\n"));
                object(parts, call, ["name", "arguments"]);
            }
            parts.extend([text("\n"), loose("</tool_calls>")]);
        },
    },
    Form {
        template: GIGACHAT_MARK,
        think: THINK,
        marks: &["<|function_call|>", "<|message_sep|>", "\"}"],
        write: |parts, calls| {
            for call in calls {
                parts.push(loose("<|function_call|>"));
                object(parts, call, ["name", "arguments"]);
            }
        },
    },
    Form {
        template: FUNCTIONARY,
        think: THINK,
        marks: &["<function=f>", "</function>", "\"}", "}"],
        write: |parts, calls| {
            for (name, arguments) in calls {
                parts.extend([loose("<function="), text(name), mark(">")]);
                json(parts, &Json::from(arguments.clone()));
                parts.push(loose("</function>"));
            }
        },
    },
    Form {
        template: DSML,
        think: THINK,
        marks: &[
            "<｜DSML｜function_calls>.",
            ". </｜DSML｜function_calls>",
            "see <｜DSML｜invoke name=\"f\">",
            "</｜DSML｜invoke>",
            "see <｜DSML｜parameter name=\"path\"",
            "</｜DSML｜parameter>",
        ],
        write: dsml,
    },
];

fn mark(text: &str) -> Part {
    Part::Mark(text.to_owned())
}

fn loose(text: &str) -> Part {
    Part::Loose(text.to_owned())
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

/// Strings as they are, other values as JSON.
pub(super) fn plain(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value in JSON: each bracket, comma, colon and quote is a mark.
fn json(parts: &mut Vec<Part>, value: &Json) {
    let list =
        |parts: &mut Vec<Part>, brackets: [&str; 2], items: &mut dyn Iterator<Item = (Option<&String>, &Json)>| {
            parts.push(loose(brackets[0]));
            for (i, (key, value)) in items.enumerate() {
                if i > 0 {
                    parts.extend([loose(","), text(" ")]);
                }
                if let Some(key) = key {
                    string(parts, key);
                    parts.extend([loose(":"), text(" ")]);
                }
                json(parts, value);
            }
            parts.push(loose(brackets[1]));
        };
    match value {
        Json::Array(items) => list(parts, ["[", "]"], &mut items.iter().map(|item| (None, item))),
        Json::Object(items) => list(parts, ["{", "}"], &mut items.iter().map(|(key, item)| (Some(key), item))),
        Json::String(value) => string(parts, value),
        value => parts.push(text(&value.to_string())),
    }
}

fn string(parts: &mut Vec<Part>, value: &str) {
    let quoted = Json::from(value).to_string();
    parts.extend([loose("\""), text(&quoted[1..quoted.len() - 1]), mark("\"")]);
}

fn object(parts: &mut Vec<Part>, (name, arguments): &Call, keys: [&str; 2]) {
    let mut value = Map::new();
    value.insert(keys[0].to_owned(), Json::from(name.as_str()));
    value.insert(keys[1].to_owned(), Json::from(arguments.clone()));
    json(parts, &Json::from(value));
}

fn hermes(parts: &mut Vec<Part>, calls: &[Call]) {
    for call in calls {
        parts.extend([loose("<tool_call>"), text("\n")]);
        object(parts, call, ["name", "arguments"]);
        parts.extend([text("\n"), loose("</tool_call>")]);
    }
}

/// Before a name, after it, at the end; before a key, after it, after a value.
const CODER_TAGS: [&str; 6] = ["<function=", ">", "</function>", "<parameter=", ">", "</parameter>"];

const MINIMAX_TAGS: [&str; 6] = ["<invoke name=\"", "\">", "</invoke>", "<parameter name=\"", "\">", "</parameter>"];

fn function(parts: &mut Vec<Part>, (name, arguments): &Call, tags: [&str; 6], line: &str) {
    parts.extend([loose(tags[0]), text(name), mark(tags[1]), text("\n")]);
    for (key, value) in arguments {
        let value = plain(value);
        // MiniMax may write a value on lines of its own: one with line ends at both sides is read as such.
        let is_ambiguous = value.len() > 1 && value.starts_with('\n') && value.ends_with('\n');
        let line = if tags == MINIMAX_TAGS && is_ambiguous { "\n" } else { line };
        parts.extend([loose(tags[3]), text(key), mark(tags[4]), text(line), text(&value), text(line)]);
        parts.extend([mark(tags[5]), text("\n")]);
    }
    parts.push(loose(tags[2]));
}

fn tagged(parts: &mut Vec<Part>, calls: &[Call], marks: [&str; 2], tags: [&str; 6], line: &str) {
    for call in calls {
        parts.extend([loose(marks[0]), text("\n")]);
        function(parts, call, tags, line);
        parts.extend([text("\n"), loose(marks[1]), text("\n")]);
    }
}

fn minimax(parts: &mut Vec<Part>, calls: &[Call]) {
    parts.extend([loose("<minimax:tool_call>"), text("\n")]);
    for call in calls {
        function(parts, call, MINIMAX_TAGS, "");
        parts.push(text("\n"));
    }
    parts.push(loose("</minimax:tool_call>"));
}

const ATEM_TAGS: [&str; 6] =
    ["<atem:invoke name=\"", "\">", "</atem:invoke>", "<atem:parameter name=\"", "\">", "</atem:parameter>"];

fn muse(parts: &mut Vec<Part>, calls: &[Call]) {
    for call in calls {
        parts.extend([mark("<|start|>assistant"), text(" to="), text(&call.0), mark("<|message|>")]);
        parts.extend([loose("<atem:function_calls>"), text("\n")]);
        function(parts, call, ATEM_TAGS, "");
        parts.extend([text("\n"), loose("</atem:function_calls>"), loose("<|eom|>")]);
    }
}

fn minimax_m3(parts: &mut Vec<Part>, calls: &[Call]) {
    parts.extend([loose("]<]minimax[>[<tool_call>"), text("\n")]);
    for (name, arguments) in calls {
        parts.extend([loose("]<]minimax[>[<invoke name=\""), text(name), mark("\">")]);
        arguments.iter().for_each(|(key, value)| nested(parts, key, value));
        parts.extend([loose("]<]minimax[>[</invoke>"), text("\n")]);
    }
    parts.push(loose("]<]minimax[>[</tool_call>"));
}

/// A value between tags, with tags for what is in it.
fn nested(parts: &mut Vec<Part>, name: &str, value: &Json) {
    let (open, close) = (format!("]<]minimax[>[<{name}>"), format!("]<]minimax[>[</{name}>"));
    parts.push(loose(&open));
    match value {
        Json::Array(items) => items.iter().for_each(|item| nested(parts, "item", item)),
        Json::Object(items) => items.iter().for_each(|(key, item)| nested(parts, key, item)),
        scalar => parts.push(text(&plain(scalar))),
    }
    parts.push(if value.is_array() || value.is_object() { loose(&close) } else { mark(&close) });
}

fn glm(parts: &mut Vec<Part>, calls: &[Call]) {
    for (name, arguments) in calls {
        parts.extend([loose("<tool_call>"), text(name), text("\n")]);
        for (key, value) in arguments {
            parts.extend([loose("<arg_key>"), text(key), mark("</arg_key>"), text("\n")]);
            parts.extend([loose("<arg_value>"), text(&plain(value)), mark("</arg_value>"), text("\n")]);
        }
        parts.extend([loose("</tool_call>"), text("\n")]);
    }
}

fn hy3(parts: &mut Vec<Part>, calls: &[Call]) {
    parts.extend([loose("<tool_calls:opensource>"), text("\n")]);
    for (name, arguments) in calls {
        parts.extend([loose("<tool_call:opensource>"), text(name), mark("<tool_sep:opensource>"), text("\n")]);
        for (key, value) in arguments {
            parts.extend([loose("<arg_key:opensource>"), text(key), mark("</arg_key:opensource>"), text("\n")]);
            parts.extend([loose("<arg_value:opensource>"), text(&plain(value)), mark("</arg_value:opensource>")]);
            parts.push(text("\n"));
        }
        parts.extend([loose("</tool_call:opensource>"), text("\n")]);
    }
    parts.push(loose("</tool_calls:opensource>"));
}

/// Around all calls, and of one: before it, before its name, after its name, after it.
fn section(parts: &mut Vec<Part>, calls: &[Call], around: [&str; 2], marks: [&str; 4]) {
    parts.push(loose(around[0]));
    for (number, (name, arguments)) in calls.iter().enumerate() {
        let number = if marks[1].is_empty() { String::new() } else { format!(":{number}") };
        parts.extend([loose(marks[0]), text(&[marks[1], name, &number].concat()), mark(marks[2])]);
        json(parts, &Json::from(arguments.clone()));
        parts.push(loose(marks[3]));
    }
    parts.push(loose(around[1]));
}

fn fenced(parts: &mut Vec<Part>, calls: &[Call]) {
    parts.push(loose("<｜tool▁calls▁begin｜>"));
    for (name, arguments) in calls {
        parts.extend([loose("<｜tool▁call▁begin｜>"), loose("function<｜tool▁sep｜>"), text(name)]);
        parts.extend([mark("\n```json"), text("\n")]);
        json(parts, &Json::from(arguments.clone()));
        parts.extend([text("\n"), loose("```"), loose("<｜tool▁call▁end｜>"), text("\n")]);
    }
    parts.push(loose("<｜tool▁calls▁end｜>"));
}

fn gemma4(parts: &mut Vec<Part>, calls: &[Call]) {
    for (name, arguments) in calls {
        parts.extend([loose("<|tool_call>"), loose("call:"), text(name)]);
        between_quotes(parts, &Json::from(arguments.clone()));
        parts.push(loose("<tool_call|>"));
    }
}

fn between_quotes(parts: &mut Vec<Part>, value: &Json) {
    let comma = |parts: &mut Vec<Part>, i| parts.extend((i > 0).then(|| [loose(","), text(" ")]).into_iter().flatten());
    match value {
        Json::String(string) => parts.extend([loose("<|\"|>"), text(string), mark("<|\"|>")]),
        Json::Array(items) => {
            parts.push(loose("["));
            for (i, item) in items.iter().enumerate() {
                comma(parts, i);
                between_quotes(parts, item);
            }
            parts.push(loose("]"));
        }
        Json::Object(items) => {
            parts.push(mark("{"));
            for (i, (key, item)) in items.iter().enumerate() {
                comma(parts, i);
                parts.extend([text(key), loose(":")]);
                between_quotes(parts, item);
            }
            parts.push(loose("}"));
        }
        scalar => parts.push(text(&scalar.to_string())),
    }
}

fn harmony(parts: &mut Vec<Part>, calls: &[Call]) {
    for (i, (name, arguments)) in calls.iter().enumerate() {
        if i > 0 {
            parts.push(mark("<|start|>assistant"));
        }
        parts.extend([mark("<|channel|>"), text("commentary to=functions."), text(name), text(" ")]);
        parts.extend([mark("<|constrain|>"), text("json"), mark("<|message|>")]);
        json(parts, &Json::from(arguments.clone()));
        parts.push(loose("<|call|>"));
    }
}

fn named(parts: &mut Vec<Part>, calls: &[Call]) {
    for (name, arguments) in calls {
        parts.extend([loose("[TOOL_CALLS]"), text(name), mark("[ARGS]")]);
        json(parts, &Json::from(arguments.clone()));
    }
}

fn listed(parts: &mut Vec<Part>, calls: &[Call], open: &str, name: &str, arguments: &str, close: &str) {
    parts.extend([loose(open), loose("[")]);
    for (i, call) in calls.iter().enumerate() {
        if i > 0 {
            parts.extend([loose(","), text(" ")]);
        }
        object(parts, call, [name, arguments]);
    }
    parts.extend([loose("]"), loose(close)]);
}

fn keyed(parts: &mut Vec<Part>, calls: &[Call]) {
    parts.extend([loose("<|tools_prefix|>"), loose("[")]);
    for (i, (name, arguments)) in calls.iter().enumerate() {
        if i > 0 {
            parts.extend([loose(","), text(" ")]);
        }
        json(parts, &json!({ name: arguments }));
    }
    parts.extend([loose("]"), loose("<|tools_suffix|>")]);
}

fn dsml(parts: &mut Vec<Part>, calls: &[Call]) {
    parts.extend([loose("<｜DSML｜function_calls>"), text("\n")]);
    for (name, arguments) in calls {
        parts.extend([loose("<｜DSML｜invoke name=\""), text(name), mark("\">"), text("\n")]);
        for (key, value) in arguments {
            let string = if value.is_string() { "true" } else { "false" };
            parts.extend([loose("<｜DSML｜parameter name=\""), text(key), mark("\" string=\""), text(string)]);
            parts.extend([mark("\">"), text(&plain(value)), mark("</｜DSML｜parameter>"), text("\n")]);
        }
        parts.extend([loose("</｜DSML｜invoke>"), text("\n")]);
    }
    parts.push(loose("</｜DSML｜function_calls>"));
}

fn llama(parts: &mut Vec<Part>, calls: &[Call]) {
    for (i, call) in calls.iter().enumerate() {
        if i > 0 {
            parts.extend([loose(";"), text(" ")]);
        }
        object(parts, call, ["name", "parameters"]);
    }
}

fn tag_of_llama(parts: &mut Vec<Part>, calls: &[Call]) {
    parts.push(loose("<|python_tag|>"));
    llama(parts, calls);
}

fn python(parts: &mut Vec<Part>, calls: &[Call], open: &str, close: &str) {
    parts.extend([loose(open), loose("[")]);
    for (i, (name, arguments)) in calls.iter().enumerate() {
        if i > 0 {
            parts.extend([loose(","), text(" ")]);
        }
        parts.extend([text(name), mark("(")]);
        for (i, (key, value)) in arguments.iter().enumerate() {
            if i > 0 {
                parts.extend([loose(","), text(" ")]);
            }
            parts.extend([text(key), loose("=")]);
            literal(parts, value);
        }
        parts.push(loose(")"));
    }
    parts.extend([loose("]"), loose(close)]);
}

/// A literal of Python.
fn literal(parts: &mut Vec<Part>, value: &Json) {
    let comma = |parts: &mut Vec<Part>, i| parts.extend((i > 0).then(|| [loose(","), text(" ")]).into_iter().flatten());
    let quoted = |parts: &mut Vec<Part>, string: &str| {
        let string = string.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
        parts.extend([loose("'"), text(&string), mark("'")]);
    };
    match value {
        Json::String(string) => quoted(parts, string),
        Json::Array(items) => {
            parts.push(loose("["));
            for (i, item) in items.iter().enumerate() {
                comma(parts, i);
                literal(parts, item);
            }
            parts.push(loose("]"));
        }
        Json::Object(items) => {
            parts.push(loose("{"));
            for (i, (key, item)) in items.iter().enumerate() {
                comma(parts, i);
                quoted(parts, key);
                parts.extend([loose(":"), text(" ")]);
                literal(parts, item);
            }
            parts.push(loose("}"));
        }
        Json::Null => parts.push(text("None")),
        Json::Bool(value) => parts.push(text(if *value { "True" } else { "False" })),
        number => parts.push(text(&number.to_string())),
    }
}

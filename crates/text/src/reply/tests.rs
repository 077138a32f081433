//! Replies of all forms, and hostile ones.

mod answers;
mod by_data;
mod cases;
mod damaged;
mod forms;
mod hostile;
mod joined;
mod reasoning;
mod repaired;
mod started;
mod thought;
mod written;

use super::output::Output;
use crate::template::Tool;
use serde_json::json;

use super::*;

// The marks by which templates are recognised.
const QWEN: &str = "{{ '<tool_call>' }}";
const CODER: &str = "{{ '<tool_call>\n<function=' }}";
const GLM: &str = "{{ '<tool_call>' }}{{ '<arg_key>' }}";
const MINIMAX: &str = "{{ '<minimax:tool_call>' }}";
const GEMMA4: &str = "{{ '<|tool_call>call:' }}";
const COMMAND: &str = "{{ '<|START_ACTION|>' }}";
const SEED: &str = "{{ '<seed:tool_call>\n<function=' }}";
const LFM2: &str = "{{ '<|tool_list_start|>' }}";
const LLAMA: &str = "{{ '<|python_tag|>' }}";
const LLAMA4: &str = "{{ '<|python_start|>' }}";
const MISTRAL: &str = "{{ '[TOOL_CALLS]' }}";
const NAMED: &str = "{{ '[TOOL_CALLS]name[ARGS]' }}";
const MAGISTRAL: &str = "{{ '[THINK]' + '[TOOL_CALLS]' }}";
const DEEPSEEK: &str = "{{ '<｜tool▁sep｜>' }}";
const KIMI: &str = "{{ '<|tool_call_argument_begin|>' }}";
const HY3: &str = "{{ '<tool_sep{}>'.format(':opensource') }}";
const FENCED: &str = "{{ 'function<｜tool▁sep｜>' + name + '\n```json\n' }}";
const M3: &str = "{%- set ns_token = ']<]minimax[>[' -%}{{ '<tool_call>' }}";
const ERNIE: &str = "{{ '<global_setting>\nthink_mode=True\n</global_setting>' }}{{ '<tool_call>' }}";
const HUNYUAN: &str = "{{ '<tool_calls>[{\"name\": \"func_name1\"' }}";
const MUSE: &str = "{{ '<atem:function_calls>\n<atem:invoke name=\"' }}{{ '<|start|>assistant' }}";
const HARMONY: &str = "{{ '<|start|>assistant<|channel|>' }}";

const SOLAR: &str = "{{ '<|tool_call:begin|>' }}";
const DSML: &str = "{% set dsml_token = '｜DSML｜' %}{{ '<' + dsml_token + 'function_calls>' }}";
const DSML_V4: &str = "{% set dsml_token = '｜DSML｜' %}{{ '<' + dsml_token + 'tool_calls>' }}";
const KIMI_K3: &str = "{{ '<|open|>' + tag + '<|sep|>' }}{{ '<|close|>' + tag + '<|sep|>' }}";
const MINICPM: &str = "{{ '<function name=\"' ~ name ~ '\">' }}{{ '<param name=\"' ~ key ~ '\">' }}";
const APERTUS: &str = "{% set tool_calls_token = '<|tools_prefix|>' %}";
const NEMOTRON: &str = "{{- '<TOOLCALL>[' -}}";
const GRANITE: &str = "respond only with <|tool_call|> followed by a JSON list";
const GIGACHAT: &str = "{{ '<|message_sep|>' }}{{ render({'role': 'function call'}) }}";
const GIGACHAT_MARK: &str = "{{ '<|function_call|>' }}";
const MINIMAX_M1: &str = "{{ '<tool_calls>\\n{\"name\": <tool-name>}' }}";
const FUNCTIONARY: &str = "{{ '<function=' + name + '>' + arguments + '</function>' }}";
const RECIPIENT: &str = "{{ '>>>all\n' + content }}";

const TEMPLATES: [&str; 35] = [
    QWEN,
    CODER,
    GLM,
    MINIMAX,
    M3,
    GEMMA4,
    COMMAND,
    SEED,
    LFM2,
    LLAMA,
    LLAMA4,
    MISTRAL,
    NAMED,
    MAGISTRAL,
    FENCED,
    DEEPSEEK,
    KIMI,
    HY3,
    ERNIE,
    HUNYUAN,
    MUSE,
    HARMONY,
    SOLAR,
    DSML,
    DSML_V4,
    KIMI_K3,
    MINICPM,
    APERTUS,
    NEMOTRON,
    GRANITE,
    GIGACHAT,
    GIGACHAT_MARK,
    MINIMAX_M1,
    FUNCTIONARY,
    RECIPIENT,
];

/// The tools of a request.
fn tools() -> ReplyOptions {
    let properties = json!({
        "city": {"type": "string"}, "days": {"type": "integer"},
        "tags": {"type": "array"}, "exact": {"type": "boolean"},
        "limit": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "place": {"$ref": "#/$defs/Place"}, "free": {},
        "unit": {"enum": ["kg", "t"]}, "either": {"type": ["string", "integer"]}, "self": {"$ref": "#/properties/self"},
    });
    let parameters = json!({"type": "object", "properties": properties, "$defs": {"Place": {"type": "object"}}});
    let tool = |name: &str, parameters| Tool { name: name.to_owned(), parameters, ..Tool::default() };
    ReplyOptions::for_tools(&[tool("get_weather", Some(parameters)), tool("get_time", None)])
}

fn reasoning(text: &str) -> ReplyEvent {
    ReplyEvent::Reasoning(text.to_owned())
}

fn content(text: &str) -> ReplyEvent {
    ReplyEvent::Content(text.to_owned())
}

fn call(name: &str, arguments: &str) -> ReplyEvent {
    ReplyEvent::ToolCall(ToolCall { name: name.to_owned(), arguments: arguments.to_owned() })
}

fn form(template: &str, prompt: &str, options: ReplyOptions) -> ReplyForm {
    ReplyForm::new(Syntax::of(template, prompt), template, prompt, options)
}

/// All events of a text in pieces; neighbours of one kind are one.
fn events<'t>(mut reply: Reply, pieces: impl IntoIterator<Item = &'t str>) -> Vec<ReplyEvent> {
    let mut output = Output::default();
    let mut events: Vec<ReplyEvent> = pieces.into_iter().flat_map(|piece| reply.push(piece)).collect();
    events.extend(reply.finish());
    for event in events {
        match event {
            ReplyEvent::Reasoning(text) => output.reasoning(&text),
            ReplyEvent::Content(text) => output.content(&text),
            ReplyEvent::ToolCall(call) => output.call(call),
        }
    }
    output.take()
}

/// Pieces of `n` characters.
fn pieces(text: &str, n: usize) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).step_by(n).chain([text.len()]).collect();
    (1..starts.len()).map(move |i| &text[starts[i - 1]..starts[i]])
}

/// Checks the events of a text in pieces of all lengths.
fn check(template: &str, prompt: &str, options: &ReplyOptions, text: &str, expected: &[ReplyEvent]) {
    for n in 1..=text.chars().count().max(1) {
        let found = events(Reply::new(Some(template), prompt, options.clone()), pieces(text, n));
        assert_eq!(found, expected, "{text:?} in pieces of {n}");
    }
}

/// Checks the events of a reply with tools.
fn check_call(template: &str, text: &str, expected: &[ReplyEvent]) {
    check(template, "", &tools(), text, expected);
}

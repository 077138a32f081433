//! Grammars that are made to cost time and memory, through every field that takes one. CI runs some of those of the
//! engine's tests; all of them, with times:
//! `cargo test --release -p gristmill-server --test serve -- --ignored --nocapture bombs`.

use std::time::{Duration, Instant};

use gristmill_engine::Grammar;
use serde_json::{Value, json};

use crate::hostile;
use crate::server::{Running, engine_with, model, options};

const CHAT: &str = "/v1/chat/completions";

/// The bound of compiling is 200 ms; this leaves room for the reply, and for a build without optimisation on a busy
/// machine.
const MOST_TIME: Duration = if cfg!(debug_assertions) { Duration::from_secs(5) } else { Duration::from_millis(400) };
const MOST_BYTES: usize = 256 << 20;

fn chat(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "seed": 1});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

/// The largest memory that this process had, in bytes.
fn most_resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<usize>().ok()? << 10)
}

/// Sends a body, which is served or refused soon.
fn send(server: &Running, name: &str, path: &str, body: &Value) -> u16 {
    let start = Instant::now();
    let reply = server.post(path, body);
    let time = start.elapsed();
    println!("{time:>9.1?} {} {name}: {:.120}", reply.status, reply.text);
    // 422: the model has no token that the grammar allows.
    assert!([200, 400, 422].contains(&reply.status), "{name}: {} {:.500}", reply.status, reply.text);
    assert!(time < MOST_TIME, "{name} took {time:?}");
    reply.status
}

/// Through each field that takes a schema.
fn schema_everywhere(server: &Running, name: &str, schema: &Value) {
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let tool = json!({"name": "f", "parameters": schema});
    let tools = json!([{"type": "function", "function": tool}]);
    let statuses = [
        send(server, name, CHAT, &chat(json!({"response_format": format}))),
        send(server, name, CHAT, &chat(json!({"guided_json": schema}))),
        send(server, name, CHAT, &chat(json!({"tools": tools, "tool_choice": "required"}))),
    ];
    assert_eq!(statuses[0], statuses[1], "{name}");
    let flat = json!({"type": "json_schema", "name": "x", "schema": schema});
    send(server, name, "/v1/responses", &json!({"input": "a", "max_output_tokens": 3, "text": {"format": flat}}));
    send(server, name, "/v1/completions", &json!({"prompt": "a", "max_tokens": 3, "guided_json": schema}));
    let tool = json!({"name": "f", "input_schema": schema});
    let messages = json!([{"role": "user", "content": "a"}]);
    let body = json!({
        "model": "tiny", "messages": messages, "max_tokens": 3, "tools": [tool], "tool_choice": {"type": "any"},
    });
    send(server, name, "/v1/messages", &body);
}

fn text_of(grammar: Grammar) -> Value {
    match grammar {
        Grammar::Regex(text) => json!({"guided_regex": text}),
        Grammar::Lark(text) => json!({"guided_grammar": text}),
        other => panic!("{other:?} is no text"),
    }
}

#[test]
fn grammars_are_refused_or_bounded() {
    let server = Running::new(engine_with(&model(), 2, 90), options());
    let before = most_resident();
    let nested = "((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}";
    let values: Vec<String> = (0..10_000).map(|number| format!("value {number}")).collect();
    let deep = (0..60).fold(json!({"type": "string"}), |schema, _| json!({"type": "array", "items": schema}));
    send(&server, "nested repeats", CHAT, &chat(json!({"guided_regex": nested})));
    send(&server, "10,000 choices", CHAT, &chat(json!({"guided_choice": values})));
    for (name, schema) in [
        ("nested repeats in a pattern", json!({"type": "string", "pattern": format!("^{nested}$")})),
        ("a schema of 1 MB", json!({"const": "x".repeat(1 << 20)})),
        ("a schema that is itself", json!({"$ref": "#"})),
        ("a circle", json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}})),
        ("a deep schema", deep),
        ("10,000 values", json!({"enum": values})),
        ("many items", json!({"type": "array", "items": {"minItems": 1_000_000}, "minItems": 2_000_000_000})),
        ("great lengths", json!({"type": "string", "minLength": 2_000_000_000})),
        ("lengths beyond 64 bits", json!({"type": "string", "minLength": 1e300, "maxLength": -1})),
    ] {
        schema_everywhere(&server, name, &schema);
    }
    let after = most_resident();
    println!("largest memory: {before:?} bytes before, {after:?} after");
    assert!(after <= before.map(|before| before + MOST_BYTES), "{after:?} bytes, {before:?} before");
    assert_eq!(send(&server, "a good grammar", CHAT, &chat(json!({"guided_regex": "a"}))), 200);
}

#[test]
#[ignore = "10 seconds"]
fn many_grammars_are_refused_or_bounded() {
    let server = Running::new(engine_with(&model(), 2, 90), options());
    for (name, schema) in hostile::schemas() {
        schema_everywhere(&server, name, &schema);
    }
    for (name, grammar) in hostile::texts() {
        send(&server, name, CHAT, &chat(text_of(grammar)));
    }
    assert_eq!(send(&server, "a good grammar", CHAT, &chat(json!({"guided_regex": "a"}))), 200);
    println!("largest memory: {:?} bytes", most_resident());
}

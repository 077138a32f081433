//! Refusals: of which requests, how, and how soon.

use std::time::{Duration, Instant};

use gristmill_server::Options;
use serde_json::{Value, json};

use crate::server::{CONTEXT, Running, engine, model, options};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";

/// A schema with a keyword that is not enforced.
fn bad_schema() -> Value {
    json!({"type": "object", "properties": {"a": {"unevaluatedItems": false}}})
}

fn tool(parameters: Value) -> Value {
    json!({"type": "function", "function": {"name": "f", "parameters": parameters}})
}

fn allowed(name: &str, mode: &str) -> Value {
    let tools = json!([{"type": "function", "function": {"name": name}}]);
    json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
}

fn chat(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "abc"}], "max_tokens": 2});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn text(more: Value) -> Value {
    let mut body = json!({"prompt": "abc", "max_tokens": 2});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

#[test]
fn a_wrong_field_is_named() {
    let server = Running::usual();
    let long = "x".repeat(CONTEXT + 1);
    let cases = [
        (CHAT, json!({}), "messages"),
        (CHAT, chat(json!({"messages": []})), "messages"),
        (CHAT, chat(json!({"messages": [{"role": "judge", "content": "x"}]})), "messages[0].role"),
        (CHAT, chat(json!({"messages": [{"role": "user"}]})), "messages[0].content"),
        (CHAT, chat(json!({"messages": [{"role": "user", "content": 5}]})), "messages[0].content"),
        (
            CHAT,
            chat(json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})),
            "messages[0].content[0].image_url",
        ),
        (CHAT, chat(json!({"messages": [{"role": "user", "content": long}]})), "messages"),
        (CHAT, chat(json!({"temperature": -0.5})), "temperature"),
        (CHAT, chat(json!({"temperature": "hot"})), "temperature"),
        (CHAT, chat(json!({"temperature": 1e39})), "temperature"),
        (CHAT, chat(json!({"top_p": -0.1})), "top_p"),
        (CHAT, chat(json!({"max_tokens": -2})), "max_tokens"),
        (CHAT, chat(json!({"max_completion_tokens": -2, "max_tokens": null})), "max_completion_tokens"),
        (CHAT, chat(json!({"top_k": -2})), "top_k"),
        (CHAT, chat(json!({"min_p": 2})), "min_p"),
        (CHAT, chat(json!({"n": 0})), "n"),
        (CHAT, chat(json!({"n": 129})), "n"),
        (CHAT, chat(json!({"seed": 1.5})), "seed"),
        (CHAT, chat(json!({"stop": 7})), "stop"),
        (CHAT, chat(json!({"stop": vec!["x"; 65]})), "stop"),
        (CHAT, chat(json!({"stop": "x".repeat(1_001)})), "stop"),
        (CHAT, chat(json!({"max_tokens": 0})), "max_tokens"),
        (CHAT, chat(json!({"min_tokens": 3})), "min_tokens"),
        (CHAT, chat(json!({"logit_bias": {"x": 1}})), "logit_bias"),
        (CHAT, chat(json!({"logit_bias": {"99999": 1}})), "logit_bias"),
        (CHAT, chat(json!({"top_logprobs": 2})), "top_logprobs"),
        (CHAT, chat(json!({"logprobs": true, "top_logprobs": 21})), "top_logprobs"),
        (CHAT, chat(json!({"functions": [{"name": "f"}]})), "functions"),
        (CHAT, chat(json!({"tools": [{}]})), "tools[0].type"),
        (CHAT, chat(json!({"tools": [{"type": "function", "name": "f"}]})), "tools[0].function"),
        (CHAT, chat(json!({"tools": [{"type": "function", "function": {}}]})), "tools[0].function.name"),
        (CHAT, chat(json!({"tool_choice": "maybe"})), "tool_choice"),
        (CHAT, chat(json!({"tool_choice": "required"})), "tool_choice"),
        (CHAT, chat(json!({"response_format": {"type": "xml"}})), "response_format.type"),
        (CHAT, chat(json!({"response_format": {"type": "json_schema"}})), "response_format.json_schema"),
        (CHAT, chat(json!({"response_format": {"type": "json_object"}, "guided_regex": "a"})), "response_format"),
        (CHAT, chat(json!({"guided_choice": []})), "guided_choice"),
        (CHAT, chat(json!({"guided_regex": "("})), "guided_regex"),
        (CHAT, chat(json!({"guided_json": bad_schema()})), "guided_json.properties.a.unevaluatedItems"),
        (
            CHAT,
            chat(json!({"response_format": {"type": "json_schema", "json_schema": {"schema": bad_schema()}}})),
            "response_format.json_schema.schema.properties.a.unevaluatedItems",
        ),
        (
            CHAT,
            chat(json!({"structured_outputs": {"json": bad_schema()}})),
            "structured_outputs.json.properties.a.unevaluatedItems",
        ),
        (CHAT, chat(json!({"structured_outputs": {"structural_tag": "x"}})), "structured_outputs.structural_tag"),
        (CHAT, chat(json!({"structured_outputs": {"regex": "("}})), "structured_outputs.regex"),
        (CHAT, chat(json!({"max_completion_tokens": 0, "max_tokens": null})), "max_completion_tokens"),
        (CHAT, chat(json!({"repeat_penalty": -1})), "repeat_penalty"),
        (CHAT, chat(json!({"dry_multiplier": -1})), "dry_multiplier"),
        (CHAT, chat(json!({"dry_base": 0.5})), "dry_base"),
        (CHAT, chat(json!({"dry_allowed_length": 0})), "dry_allowed_length"),
        (CHAT, chat(json!({"dry_penalty_last_n": -2})), "dry_penalty_last_n"),
        (CHAT, chat(json!({"dry_multiplier": 1, "dry_sequence_breakers": [""]})), "dry_sequence_breakers"),
        (CHAT, chat(json!({"tools": [tool(json!({})), tool(json!({}))]})), "tools[1].function.name"),
        (
            CHAT,
            chat(json!({"tools": [tool(json!({}))], "tool_choice": allowed("x", "auto")})),
            "tool_choice.allowed_tools.tools[0]",
        ),
        (
            CHAT,
            chat(json!({"tools": [tool(json!({}))], "tool_choice": allowed("f", "x")})),
            "tool_choice.allowed_tools.mode",
        ),
        (
            CHAT,
            chat(
                json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}]}),
            ),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (TEXT, json!({}), "prompt"),
        (TEXT, text(json!({"prompt": []})), "prompt"),
        (TEXT, text(json!({"prompt": ""})), "prompt"),
        (TEXT, text(json!({"prompt": {"a": 1}})), "prompt"),
        (TEXT, text(json!({"prompt": [1, 99_999]})), "prompt"),
        (TEXT, text(json!({"prompt": long})), "prompt"),
        (TEXT, text(json!({"prompt": ["a", "b", long]})), "prompt[2]"),
        (TEXT, text(json!({"guided_grammar": "start: ("})), "guided_grammar"),
        (RESPONSES, json!({"input": long}), "input"),
        (RESPONSES, json!({"input": "a", "max_output_tokens": 0}), "max_output_tokens"),
        (TEXT, text(json!({"prompt": vec!["x"; 1_025]})), "prompt"),
        (TEXT, text(json!({"max_tokens": 0})), "max_tokens"),
        (TEXT, text(json!({"logprobs": 21})), "logprobs"),
        (TEXT, text(json!({"best_of": 3})), "best_of"),
        (TEXT, text(json!({"suffix": "x"})), "suffix"),
        (TEXT, text(json!({"echo": true, "stream": true})), "echo"),
        ("/tokenize", json!({}), "prompt"),
        ("/tokenize", json!({"prompt": "a", "messages": []}), "prompt"),
        ("/detokenize", json!({"tokens": [1, 99_999]}), "tokens"),
        ("/detokenize", json!({"tokens": [-1]}), "tokens[0]"),
    ];
    for (path, body, param) in cases {
        let start = Instant::now();
        let reply = server.post(path, &body);
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{path} {body}: {}", reply.text);
        assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{}", reply.text);
        assert!(start.elapsed() < Duration::from_millis(500), "{path} {body} took {:?}", start.elapsed());
    }
    let long = server.post(CHAT, &chat(json!({"messages": [{"role": "user", "content": long}]})));
    assert_eq!(long.json()["error"]["code"], "context_length_exceeded");
    assert_eq!(server.metric("gristmill_generated_tokens_total"), 0.0);
}

#[test]
fn wrong_types_are_named_in_words() {
    let server = Running::usual();
    for (field, value, words) in [
        ("temperature", json!("hot"), "the text \"hot\" was sent where a number is needed"),
        ("max_tokens", json!(-2), "the number -2 was sent where a number of tokens, or -1 for no limit, is needed"),
        ("stream", json!("yes"), "the text \"yes\" was sent where true or false is needed"),
        ("messages", json!({"role": "user"}), "an object was sent where a list is needed"),
        ("messages", Value::Null, "the field messages is missing; send it"),
        ("tools", json!([5]), "the number 5 was sent where an object is needed"),
    ] {
        let mut body = chat(json!({}));
        body[field] = value;
        let reply = server.post(CHAT, &body);
        assert_eq!((reply.status, &reply.json()["error"]["message"]), (400, &json!(words)), "{field}");
    }
}

#[test]
fn encoded_bodies_are_refused() {
    let server = Running::usual();
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    let head = |encoding: &str, length: usize| {
        format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-encoding: {encoding}\r\n\
             content-length: {length}\r\n\r\n"
        )
    };
    let reply = server.raw(&[head("gzip", gzip.len()).as_bytes(), &gzip].concat());
    assert!(reply.starts_with("HTTP/1.1 415") && reply.contains("gzip"), "{reply}");
    let body = chat(json!({})).to_string();
    let reply = server.raw(format!("{}{body}", head("identity", body.len())).as_bytes());
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}

#[test]
fn bodies_that_are_no_requests() {
    let server = Running::new(engine(&model(), 1), Options { body_bytes: 10_000, ..options() });
    let status = |body: &str| server.post_text(CHAT, body, &[]).status;
    for body in
        ["", "{", "[]", "null", "\"x\"", "{\"messages\": }", "\u{feff}{}", &"[".repeat(5_000), &"{\"a\":".repeat(129)]
    {
        assert_eq!(status(body), 400, "{body}");
    }
    assert_eq!(status(&"x".repeat(10_001)), 413);
    let bytes = [b"{\"messages\": \"".as_slice(), &[0xff, 0xfe], b"\"}"].concat();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        bytes.len()
    );
    let reply = server.raw(&[head.as_bytes(), &bytes].concat());
    assert!(reply.starts_with("HTTP/1.1 400"), "{reply}");
    assert!(server.raw(b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert_eq!(server.get(CHAT).status, 405);
    assert_eq!(server.get("/nothing").status, 404);
    assert!(server.get("/../../etc/passwd").status == 404);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn unknown_fields_are_named_or_refused() {
    let server = Running::usual();
    let body = chat(json!({"colour": "red", "store": true, "user": "me", "metadata": {}, "functions": []}));
    let reply = server.post(CHAT, &body);
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, Some("colour")));
    let reply = server.post(CHAT, &chat(json!({"store": true})));
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, None));
    let strict = Running::new(engine(&model(), 1), Options { strict: true, ..options() });
    let reply = strict.post(CHAT, &body);
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("colour")));
}

/// Refusals cost the engine nothing and come at once. The bounds of the product are 50 and 10 ms; the test gives a busy
/// machine and a build without optimisation more.
#[test]
fn refusals_come_soon() {
    let server = Running::new(engine(&model(), 1).with_queue(0), options());
    let deep = format!("{{\"messages\": {}{}}}", "[".repeat(128), "]".repeat(128));
    let long = text(json!({"prompt": "x".repeat(CONTEXT + 1)})).to_string();
    let announced = format!(
        "POST {TEXT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{{",
        33 << 20
    );
    let head = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx-long: {}\r\n\r\n", "x".repeat(80_000));
    let status = |reply: String| reply.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    let cases: [(&str, u16, &dyn Fn() -> u16); 4] = [
        ("a body of 33 MiB", 413, &|| status(server.raw_head(announced.as_bytes()))),
        ("a head of 80 kB", 431, &|| status(server.raw_head(head.as_bytes()))),
        ("JSON of depth 129", 400, &|| server.post_text(CHAT, &deep, &[]).status),
        ("a prompt beyond the context", 400, &|| server.post_text(TEXT, &long, &[]).status),
    ];
    for (what, status, ask) in cases {
        let time = median(|| assert_eq!(ask(), status, "{what}"));
        println!("{what}: {status} within {time:.1?}");
        assert!(time < Duration::from_millis(200), "{what} took {time:?}");
    }
    assert_eq!(server.metric("gristmill_generated_tokens_total"), 0.0);
    assert_eq!(server.metric("gristmill_prompt_tokens_total"), 0.0);

    let running = server.begin(TEXT, &text(json!({"max_tokens": 900, "ignore_eos": true})));
    let time = median(|| {
        let reply = server.post(TEXT, &text(json!({})));
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{}", reply.text);
    });
    println!("a full queue: 429 within {time:.1?}");
    assert!(time < Duration::from_millis(100), "a full queue took {time:?}");
    drop(running);
}

/// The median time of several runs.
fn median(mut ask: impl FnMut()) -> Duration {
    let time = |_| {
        let start = Instant::now();
        ask();
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..9).map(time).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// What compiling refuses is said about what the caller wrote, not about what is made of it.
#[test]
fn grammars_are_refused_in_the_terms_of_the_caller() {
    let server = Running::usual();
    let few = json!({"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 1});
    let nested = json!({"type": "object", "properties": {"x": few}, "required": ["x"]});
    let ahead = json!({"type": "object", "properties": {"y": {"type": "string", "pattern": "^a(?=b)"}}});
    let strict = |name: &str, parameters: &Value| json!({"type": "function", "function": {"name": name, "strict": true, "parameters": parameters}});
    let plain = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    for (path, body, param) in [
        (TEXT, text(json!({"guided_json": few})), "guided_json"),
        (TEXT, text(json!({"guided_json": nested})), "guided_json"),
        (TEXT, text(json!({"guided_regex": "(?=a)b"})), "guided_regex"),
        (TEXT, text(json!({"guided_grammar": "start: a\na: /(?=a)b/"})), "guided_grammar"),
        (
            TEXT,
            text(json!({"guided_grammar": "start: %json {\"type\": \"array\", \"minItems\": 3, \"maxItems\": 1}"})),
            "guided_grammar",
        ),
        (
            CHAT,
            chat(json!({"tool_choice": "required", "tools": [strict("f", &plain), strict("g", &ahead)]})),
            "tools[1].function.parameters.properties.y.pattern",
        ),
    ] {
        let reply = server.post(path, &body);
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{body}: {}", reply.text);
        let message = error["message"].as_str().expect("a text");
        for internal in ["#/$defs/", "while processing", "1 | start", "Regex", "Unsatisfiable"] {
            assert!(!message.contains(internal), "{body}: {message}");
        }
        println!("{param}: {message}");
    }
}

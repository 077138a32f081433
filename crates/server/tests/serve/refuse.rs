//! What is refused, how, and how soon.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use gristmill_server::Options;
use serde_json::{Value, json};

use crate::server::{CONTEXT, Running, engine, model, options};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

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
            "messages[0].content[0].type",
        ),
        (CHAT, chat(json!({"messages": [{"role": "user", "content": long}]})), "messages"),
        (CHAT, chat(json!({"temperature": -0.5})), "temperature"),
        (CHAT, chat(json!({"temperature": "hot"})), "temperature"),
        (CHAT, chat(json!({"temperature": 1e39})), "temperature"),
        (CHAT, chat(json!({"top_p": 0})), "top_p"),
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
        (CHAT, chat(json!({"functions": []})), "functions"),
        (CHAT, chat(json!({"tools": [{}]})), "tools[0].type"),
        (CHAT, chat(json!({"tools": [{"type": "function"}]})), "tools[0].function.name"),
        (CHAT, chat(json!({"tool_choice": "maybe"})), "tool_choice"),
        (CHAT, chat(json!({"tool_choice": "required"})), "tool_choice"),
        (CHAT, chat(json!({"response_format": {"type": "xml"}})), "response_format.type"),
        (CHAT, chat(json!({"response_format": {"type": "json_schema"}})), "response_format.json_schema"),
        (CHAT, chat(json!({"response_format": {"type": "json_object"}, "guided_regex": "a"})), "response_format"),
        (CHAT, chat(json!({"guided_choice": []})), "guided_choice"),
        (CHAT, chat(json!({"guided_regex": "("})), "response_format"),
        (CHAT, chat(json!({"guided_json": {"type": "object", "propertyNames": {"pattern": "^a"}}})), "response_format"),
        (
            CHAT,
            chat(
                json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "["}}]}]}),
            ),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (TEXT, json!({}), "prompt"),
        (TEXT, text(json!({"prompt": []})), "prompt"),
        (TEXT, text(json!({"prompt": ""})), "prompt"),
        (TEXT, text(json!({"prompt": {"a": 1}})), "prompt"),
        (TEXT, text(json!({"prompt": [1, 99_999]})), "prompt"),
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

/// Each numeric field with each strange number: served or refused, never an error of the server.
#[test]
fn strange_numbers() {
    let server = Running::usual();
    let numbers = [
        "-1",
        "0",
        "1",
        "9223372036854775808",
        "18446744073709551616",
        "1e400",
        "-1e400",
        "NaN",
        "1.5",
        "1e-46",
        "\"1\"",
        "[]",
        "true",
    ];
    let fields = [
        (
            CHAT,
            [
                "temperature",
                "top_p",
                "top_k",
                "min_p",
                "repetition_penalty",
                "presence_penalty",
                "frequency_penalty",
                "seed",
                "n",
                "max_tokens",
                "min_tokens",
                "top_logprobs",
            ],
        ),
        (
            TEXT,
            [
                "temperature",
                "top_p",
                "top_k",
                "min_p",
                "repetition_penalty",
                "presence_penalty",
                "frequency_penalty",
                "seed",
                "n",
                "max_tokens",
                "min_tokens",
                "logprobs",
            ],
        ),
    ];
    for (path, fields) in fields {
        for field in fields {
            for number in numbers {
                let given = if path == CHAT { chat(json!({})) } else { text(json!({})) };
                let mut given = given.as_object().expect("an object").clone();
                given.remove(field);
                let given = Value::from(given).to_string();
                let body = format!("{}, \"logprobs_\": null, \"{field}\": {number}}}", &given[..given.len() - 1]);
                let reply = server.post_text(path, &body, &[]);
                assert!([200, 400].contains(&reply.status), "{body}: {} {}", reply.status, reply.text);
            }
        }
    }
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
    let reply = raw(
        &server,
        &[
            format!(
                "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                bytes.len()
            )
            .as_bytes(),
            &bytes,
        ]
        .concat(),
    );
    assert!(reply.starts_with("HTTP/1.1 400"), "{reply}");
    let head = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx-long: {}", "x".repeat(80_000));
    let reply = raw(&server, head.as_bytes());
    assert!(reply.starts_with("HTTP/1.1 431"), "{reply}");
    assert!(raw(&server, b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert_eq!(server.get(CHAT).status, 405);
    assert_eq!(server.get("/nothing").status, 404);
    assert!(server.get("/../../etc/passwd").status == 404);
    assert_eq!(server.get("/health").status, 200);
}

/// What a server replies to these bytes.
fn raw(server: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    // The server may refuse before it has read everything.
    let _ = stream.write_all(bytes);
    let mut reply = Vec::new();
    let mut part = [0; 1024];
    while let Ok(n @ 1..) = stream.read(&mut part) {
        reply.extend_from_slice(&part[..n]);
    }
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn slow_clients_are_dropped() {
    let server = Running::new(engine(&model(), 1), Options { patience: Duration::from_millis(300), ..options() });
    let mut head = TcpStream::connect(server.address).expect("it listens");
    head.write_all(b"GET /health HTTP/1.1\r\nhost: local").expect("it takes bytes");
    let mut body = TcpStream::connect(server.address).expect("it listens");
    let start = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{");
    body.write_all(start.as_bytes()).expect("it takes bytes");
    let begun = Instant::now();
    for stream in [&mut head, &mut body] {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        let mut reply = String::new();
        // Closed, or refused and closed.
        let _ = stream.read_to_string(&mut reply);
        assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 408"), "{reply}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn unknown_fields_are_named_or_refused() {
    let server = Running::usual();
    let body = chat(json!({"colour": "red", "store": true, "user": "me", "metadata": {}, "functions": null}));
    let reply = server.post(CHAT, &body);
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, Some("colour")));
    let reply = server.post(CHAT, &chat(json!({"store": true})));
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, None));
    let strict = Running::new(engine(&model(), 1), Options { strict: true, ..options() });
    let reply = strict.post(CHAT, &body);
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("colour")));
}

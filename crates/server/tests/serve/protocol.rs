//! Requests that are odd as HTTP or as JSON.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use gristmill_server::Options;
use serde_json::{Value, json};

use crate::server::{Running, engine, model, options, rest};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const BODY: &str = r#"{"prompt": "abc", "max_tokens": 2}"#;

fn status(reply: &str) -> u16 {
    reply.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// A request whose connection closes after the reply.
fn request(line: &str, headers: &str, body: &str) -> String {
    format!("{line}\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n{body}")
}

fn with_length(line: &str, headers: &str, body: &str) -> String {
    request(line, &format!("{headers}content-length: {}\r\n", body.len()), body)
}

#[test]
fn odd_bodies() {
    let server = Running::usual();
    let text = |body: &str| server.post_text(TEXT, body, &[]);
    // Parsers differ in which of two equal names counts; two names of one field contradict each other.
    let reply = text(r#"{"prompt": "a", "prompt": "abc", "max_tokens": 9, "max_tokens": 2, "ignore_eos": true}"#);
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("prompt")), "{}", reply.text);
    let both = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "max_completion_tokens": 2});
    let reply = server.post(CHAT, &both);
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("max_tokens")), "{}", reply.text);
    // A NUL is a character like others.
    for body in [
        r#"{"prompt": "a\u0000b", "max_tokens": 2, "stop": "\u0000"}"#,
        "{\"prompt\": \"a\", \"max_tokens\": 1, \"\\u0000\": 1}",
    ] {
        assert_eq!(text(body).status, 200, "{body}");
    }
    let tokens = server.post_text("/tokenize", r#"{"prompt": "a\u0000b", "add_special_tokens": false}"#, &[]).json();
    assert_eq!(server.ask("/detokenize", &json!({"tokens": tokens["tokens"]}))["prompt"], "a\0b");
    // Half of a pair of surrogates.
    for half in [r"\ud800", r"\udc00", r"\ud800\ud800", r"\ud800x"] {
        assert_eq!(text(&format!(r#"{{"prompt": "{half}", "max_tokens": 2}}"#)).status, 200, "{half}");
    }
    // A raw control character, and what is no escape at all.
    for bad in ["\0", r"\u12", r"\u+123", r"\x00"] {
        let reply = text(&format!(r#"{{"prompt": "{bad}", "max_tokens": 2}}"#));
        assert_eq!(reply.status, 400, "{bad:?}: {}", reply.text);
        assert!(reply.text.contains("not valid JSON"), "{}", reply.text);
    }
    assert_eq!(text(r#"{"prompt": "\ud83c\udf3e", "max_tokens": 2}"#).status, 200);
    assert_eq!(text(&format!("{BODY}{BODY}")).status, 400);
    assert_eq!(text(&format!("{{\"prompt\": \"a\", \"seed\": {}}}", "1".repeat(1 << 20))).status, 400);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "", "nonsense"] {
        let reply = server
            .raw(with_length(&format!("POST {TEXT} HTTP/1.1"), &format!("content-type: {kind}\r\n"), BODY).as_bytes());
        assert_eq!(status(&reply), 200, "a body is JSON, whatever its header says: {reply}");
    }
    assert_eq!(status(&server.raw(with_length(&format!("POST {TEXT} HTTP/1.1"), "", "").as_bytes())), 400);
    assert_eq!(status(&server.raw(request(&format!("POST {TEXT} HTTP/1.1"), "", "").as_bytes())), 400);
}

#[test]
fn chunked_bodies() {
    let server = Running::new(engine(&model(), 1), Options { body_bytes: 1_000, ..options() });
    let line = format!("POST {TEXT} HTTP/1.1");
    let chunked = |body: &str| status(&server.raw(request(&line, "transfer-encoding: chunked\r\n", body).as_bytes()));
    let chunks = |size: usize| -> String {
        let chunk = |part: &[u8]| format!("{:x}\r\n{}\r\n", part.len(), String::from_utf8_lossy(part));
        BODY.as_bytes().chunks(size).map(chunk).collect::<String>() + "0\r\n\r\n"
    };
    for size in [1, 7, BODY.len()] {
        assert_eq!(chunked(&chunks(size)), 200, "chunks of {size}");
    }
    assert_eq!(chunked(&format!("{:x};name=value\r\n{BODY}\r\n0\r\ntrailer: x\r\n\r\n", BODY.len())), 200);
    let long = format!("7d0\r\n{}\r\n0\r\n\r\n", " ".repeat(2_000));
    assert_eq!(chunked(&long), 413);
    for bad in ["xyz\r\n", "-5\r\nabcde\r\n", "ffffffffffffffffff\r\n", "5\r\nabcdefgh\r\n0\r\n\r\n"] {
        assert_eq!(chunked(bad), 400, "{bad:?}");
    }
    // Two lengths are how one request is smuggled behind another.
    let both = format!("transfer-encoding: chunked\r\ncontent-length: {}\r\n", BODY.len());
    let reply = server.raw(request(&line, &both, &chunks(5)).as_bytes());
    assert!([200, 400].contains(&status(&reply)) && reply.matches("HTTP/1.1").count() == 1, "{reply}");
    let two = "content-length: 5\r\ncontent-length: 34\r\n";
    assert_eq!(status(&server.raw(request(&line, two, BODY).as_bytes())), 400);
    for length in ["-1", "1e3", "18446744073709551616", "abc"] {
        assert_eq!(status(&server.raw(request(&line, &format!("content-length: {length}\r\n"), BODY).as_bytes())), 400);
    }
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn old_and_odd_forms_of_http() {
    let server = Running::usual();
    let old = |headers: &str, body: &str| {
        let length = body.len();
        server.raw(format!("POST {TEXT} HTTP/1.0\r\n{headers}content-length: {length}\r\n\r\n{body}").as_bytes())
    };
    assert_eq!(status(&old("host: localhost\r\n", BODY)), 200);
    assert_eq!(status(&old("", BODY)), 400, "without a name nobody knows whether it is this server's");
    // HTTP/1.0 has no chunks: the end of the connection is the end of the reply.
    let events = old("host: localhost\r\n", r#"{"prompt": "abc", "max_tokens": 5, "stream": true}"#);
    assert!(events.ends_with("data: [DONE]\n\n") && !events.contains("transfer-encoding"), "{events}");

    let own = format!("http://{}", server.address);
    for (target, expected) in [(own.as_str(), 200), ("http://localhost", 200), ("http://evil.example", 403)] {
        let reply = server.raw(with_length(&format!("POST {target}{TEXT} HTTP/1.1"), "", BODY).as_bytes());
        assert_eq!(status(&reply), expected, "{target}: {reply}");
    }
    for (line, expected) in [
        ("GET * HTTP/1.1", 404),
        ("OPTIONS * HTTP/1.1", 404),
        ("CONNECT localhost:80 HTTP/1.1", 404),
        ("GET /%00 HTTP/1.1", 404),
        ("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1", 404),
        ("GET //health HTTP/1.1", 404),
        ("TRACE /health HTTP/1.1", 405),
        ("PRI * HTTP/2.0", 400),
        ("GET /health HTTP/3", 400),
        ("GET  /health HTTP/1.1", 400),
    ] {
        let reply = server.raw(request(line, "", "").as_bytes());
        assert_eq!(status(&reply), expected, "{line}: {reply}");
    }
    let many: String = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect();
    assert_eq!(status(&server.raw(request("GET /health HTTP/1.1", &many, "").as_bytes())), 431);
    assert_eq!(status(&server.raw(request("GET /health HTTP/1.1", "x y: 1\r\n", "").as_bytes())), 400);
    let long = request(&format!("GET /{} HTTP/1.1", "x".repeat(70_000)), "", "");
    assert!([414, 431].contains(&status(&server.raw(long.as_bytes()))));
}

/// A client that asks whether it may send its body is told so; one whose head is refused is not.
#[test]
fn bodies_that_wait_for_leave() {
    let server = Running::new(engine(&model(), 1), Options { body_bytes: 1_000, ..options() });
    let head = |path: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: \
             {length}\r\n\r\n"
        )
    };
    let mut stream = server.connect(head(TEXT, BODY.len()).as_bytes());
    let mut leave = [0; 25];
    stream.read_exact(&mut leave).expect("leave");
    assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(BODY.as_bytes()).expect("it takes bytes");
    assert_eq!(status(&rest(stream)), 200);
    assert_eq!(status(&server.raw(head("/nowhere", BODY.len()).as_bytes())), 404);
    assert_eq!(status(&server.raw(head(TEXT, 2_000).as_bytes())), 413);
}

/// Several requests in one packet are answered one after the other, in their order.
#[test]
fn requests_behind_each_other() {
    let server = Running::usual();
    let one =
        |body: &str| format!("POST {TEXT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let events = r#"{"prompt": "abc", "max_tokens": 3, "ignore_eos": true, "stream": true}"#;
    let last = request("GET /health HTTP/1.1", "", "");
    let all = [one(BODY), one("{"), one(events), last].concat();
    let reply = server.raw(all.as_bytes());
    let statuses: Vec<u16> = reply.match_indices("HTTP/1.1 ").map(|(at, _)| status(&reply[at..])).collect();
    assert_eq!(statuses, [200, 400, 200, 200], "{reply}");
    assert!(reply.contains("data: [DONE]") && reply.ends_with(r#"{"status":"ok"}"#), "{reply}");
}

/// A body of 9 MiB is refused before it is read, to a client that continues sending.
#[test]
fn a_client_that_sends_too_much_reads_why() {
    let server = Running::new(engine(&model(), 1), Options { body_bytes: 8 << 20, ..options() });
    let body = vec![b' '; 9 << 20];
    for headers in [format!("content-length: {}\r\n", body.len()), "transfer-encoding: chunked\r\n".to_owned()] {
        let head = request(&format!("POST {TEXT} HTTP/1.1"), &headers, "");
        let chunk = if headers.starts_with('t') { format!("{:x}\r\n", body.len()) } else { String::new() };
        let reply = server.raw(&[head.as_bytes(), chunk.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat());
        assert_eq!(status(&reply), 413, "{reply}");
        assert!(reply.contains("more than 8388608 bytes"), "{reply}");
    }
}

/// Conversations that are too large in every way are refused soon, and disturb nobody.
#[test]
fn large_conversations() {
    let server = Running::usual();
    let message = json!({"role": "user", "content": "abc"});
    let many: Vec<Value> = vec![message.clone(); 10_000];
    let too_many: Vec<Value> = vec![message.clone(); 30_000];
    let large = json!([{"role": "user", "content": "wheat ".repeat(8_000_000 / 6)}]);
    let roles: Vec<Value> =
        (0..1_000).map(|number| json!({"role": format!("judge {number}"), "content": "x"})).collect();
    let start = Instant::now();
    let small = |value: Value| json!({"a": vec![value; 300_000]});
    for (what, path, body, expected) in [
        ("10,000 messages", CHAT, json!({"messages": many}), 400),
        ("10,000 items", "/v1/responses", json!({"input": many}), 400),
        ("10,000 messages", "/v1/messages", json!({"model": "tiny", "max_tokens": 1, "messages": many}), 400),
        ("30,000 messages", CHAT, json!({"messages": too_many}), 413),
        ("a message of 8 MB", CHAT, json!({"messages": large, "n": 100}), 400),
        ("a prompt of 8 MB", TEXT, json!({"prompt": large[0]["content"], "echo": true, "n": 100}), 400),
        ("unknown roles", CHAT, json!({"messages": roles}), 400),
        ("300,000 objects", CHAT, small(json!({})), 413),
        ("3,000,000 numbers", TEXT, json!({"prompt": vec![1; 3_000_000]}), 413),
    ] {
        let start = Instant::now();
        let reply = server.post(path, &body);
        println!("{what} to {path}: {} after {:.1?}: {:.150}", reply.status, start.elapsed(), reply.text);
        assert_eq!(reply.status, expected, "{what}: {:.500}", reply.text);
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert_eq!(server.metric("gristmill_generated_tokens_total"), 0.0);
    assert_eq!(server.ask(CHAT, &json!({"messages": [message], "max_tokens": 1}))["usage"]["completion_tokens"], 1);
}

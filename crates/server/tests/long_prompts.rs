//! The memory and the time that a prompt far over the context takes, in a process of its own.

#[allow(dead_code)]
#[path = "../../model/tests/model/tiny.rs"]
mod tiny;

#[path = "../../engine/tests/engine/speech.rs"]
mod speech;

#[allow(dead_code)]
#[path = "serve/server.rs"]
mod server;

use std::time::{Duration, Instant};

use serde_json::json;

use server::{Running, engine, model, options};

/// Bytes of a body just below the default limit.
const BODY: usize = 33_000_000;
/// Tokenising one such prompt takes 1.1 GB. The body is there twice, as it came and as a text.
const MOST_BYTES: usize = 160 << 20;
/// Tokenising the prompt takes half a minute.
const MOST_TIME: Duration = Duration::from_secs(2);

/// The largest memory that this process had, in bytes, on Linux.
fn most_resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<usize>().ok()? << 10)
}

#[test]
fn a_prompt_far_over_the_context_is_refused_before_it_is_tokenised() {
    let server = Running::new(engine(&model(), 2), options());
    server.ask("/v1/completions", &json!({"prompt": "warm", "max_tokens": 1}));
    let spaces = " ".repeat(BODY);
    let bodies = [
        ("/v1/completions", r#"{"prompt":"@"}"#),
        ("/v1/chat/completions", r#"{"messages":[{"role":"user","content":"@"}]}"#),
        ("/v1/messages", r#"{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":"@"}]}"#),
        ("/v1/responses", r#"{"input":"@"}"#),
        ("/tokenize", r#"{"prompt":"@"}"#),
    ];
    let bodies = bodies.map(|(path, body)| (path, body.replace('@', &spaces)));
    let too_long = r#"{"prompt":"@"}"#.replace('@', &spaces.repeat(2));
    let many_values = many_values();
    let before = most_resident();
    for (path, body) in &bodies {
        let start = Instant::now();
        let reply = server.post_text(path, body, &[]);
        println!("{path}: {} after {:.1?}", reply.status, start.elapsed());
        assert_eq!(reply.status, 400, "{path}: {:.200}", reply.text);
        assert!(start.elapsed() < MOST_TIME, "{path} took {:?}", start.elapsed());
    }
    for (path, body) in &many_values {
        let start = Instant::now();
        let reply = server.post_text(path, body, &[]);
        println!("{path}, {} bytes: {} after {:.1?}", body.len(), reply.status, start.elapsed());
        assert_eq!(reply.status, 413, "{path} {body:.100}: {:.200}", reply.text);
    }
    let start = Instant::now();
    assert_eq!(server.post_text("/v1/completions", &too_long, &[]).status, 413);
    println!("413 after {:.1?}", start.elapsed());
    let after = most_resident();
    println!("largest memory: {before:?} bytes before, {after:?} after");
    assert!(after <= before.map(|before| before + MOST_BYTES), "{after:?} bytes, {before:?} before");
}

/// Bodies with many small texts, each of which took from 50 to 120 MiB and 70 to 170 ms before its refusal.
fn many_values() -> [(&'static str, String); 4] {
    let texts = |count: usize| (0..count).map(|number| format!("value{number}")).collect::<Vec<_>>();
    let message = json!([{"role": "user", "content": "a"}]);
    let schema = json!({"type": "object", "properties": {"a": {"enum": texts(400_000)}}});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": schema}});
    let bias: serde_json::Map<_, _> = (0..240_000).map(|id| (id.to_string(), json!(1))).collect();
    [
        ("/v1/completions", json!({"prompt": texts(490_000)})),
        ("/v1/completions", json!({"prompt": "a", "logit_bias": bias})),
        ("/v1/chat/completions", json!({"messages": message, "tools": [tool]})),
        ("/v1/chat/completions", json!({"messages": message, "guided_json": schema})),
    ]
    .map(|(path, body)| (path, body.to_string()))
}

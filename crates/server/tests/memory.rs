//! The memory that a refused request takes, in a process of its own.

#[allow(dead_code)]
#[path = "../../model/tests/model/tiny.rs"]
mod tiny;

#[path = "../../engine/tests/engine/speech.rs"]
mod speech;

#[allow(dead_code)]
#[path = "serve/server.rs"]
mod server;

use serde_json::json;

use server::{Running, engine, model, options};

const MOST_BYTES: usize = 32 << 20;

/// The largest memory that this process had, in bytes, on Linux.
fn most_resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<usize>().ok()? << 10)
}

/// Before, each of the 131,072 choices had a copy of its prompt by the time that the queue refused one.
#[test]
fn choices_beyond_the_queue_take_no_memory() {
    let server = Running::new(engine(&model(), 2).with_queue(256), options());
    let prompts: Vec<String> = (0..1_024).map(|number| format!("{number} {}", "grain ".repeat(160))).collect();
    let body = json!({"prompt": prompts, "n": 128, "max_tokens": 1}).to_string();
    assert!(body.len() > 900_000);
    server.ask("/v1/completions", &json!({"prompt": "warm", "max_tokens": 1}));
    let before = most_resident();
    let reply = server.post_text("/v1/completions", &body, &[]);
    // More than can ever run or wait at a time: trying again is of no use.
    assert_eq!((reply.status, reply.header("retry-after")), (400, None), "{}", reply.text);
    let after = most_resident();
    println!("largest memory: {before:?} bytes before, {after:?} after");
    assert!(after <= before.map(|before| before + MOST_BYTES), "{after:?} bytes, {before:?} before");
}

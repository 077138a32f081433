//! Thousands of requests: memory that stays, sequences that are freed, answers that depend only on their request. CI
//! runs a part of each; all of them:
//! `cargo test --release -p gristmill-server --test serve -- --ignored --nocapture many`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gristmill_engine::{Engine, Limits, Model};
use gristmill_server::{Access, Key, Options};
use serde_json::{Value, json};

use crate::server::{Running, engine, model, options};

const PATH: &str = "/v1/completions";

/// The text of a request's only choice, and its tokens that were in the prefix cache.
fn answer(server: &Running, body: &Value, key: &str) -> (String, u64) {
    let reply = server.post_text(PATH, &body.to_string(), &[("x-api-key", key)]);
    assert_eq!(reply.status, 200, "{body}: {}", reply.text);
    let reply = reply.json();
    let cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number");
    (reply["choices"][0]["text"].as_str().expect("a text").to_owned(), cached)
}

/// Does something for each number below `count`, on this number of threads.
fn each(count: usize, threads: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        number if number < count => work(number),
                        _ => return,
                    }
                }
            });
        }
    });
}

fn wait_for_the_end(server: &Running) -> Duration {
    let start = Instant::now();
    while server.metric("gristmill_requests") != 0.0 {
        assert!(start.elapsed() < Duration::from_secs(30), "generations go on for nobody");
        std::thread::sleep(Duration::from_millis(1));
    }
    start.elapsed()
}

/// Bytes of this process's memory, of which the server is a part.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<usize>().ok()? << 10)
}

/// Mixed requests, of which each second client goes away. After a tenth of them memory grows no more.
fn disconnecting(count: usize) {
    let server = Running::new(engine(&model(), 4), options());
    let kinds = 20;
    let body = |kind: usize| {
        let words = "grain ".repeat(1 + 7 * (kind % 5));
        let tokens = [5, 40, 12, 25][kind % 4];
        json!({"prompt": format!("{kind} {words}"), "max_tokens": tokens, "ignore_eos": true, "seed": kind})
    };
    let alone: Vec<String> = (0..kinds).map(|kind| answer(&server, &body(kind), "").0).collect();
    let run = |count: usize| {
        each(count, 8, |number| {
            let kind = number * 7 % kinds;
            match number % 2 {
                0 => assert_eq!(answer(&server, &body(kind), "").0, alone[kind]),
                _ => drop(server.begin(PATH, &body(kind))),
            }
        });
        let waited = wait_for_the_end(&server);
        (resident(), waited)
    };
    let (early, _) = run(count / 10);
    let (late, waited) = run(count - count / 10);
    println!("{count} requests: {early:?} bytes after a tenth, {late:?} after all; the last freed within {waited:?}");
    assert_eq!(server.ended("error"), 0.0);
    // A hundred requests may well have touched less than all there is.
    if let (Some(early), Some(late), true) = (early, late, count >= 10_000) {
        assert!(late <= early + early / 50, "{late} bytes after all requests, {early} after a tenth");
    }
}

/// Clients with keys and texts of their own, and a cache that holds few of them.
fn isolated(clients: usize, count: usize) {
    let keys: Vec<String> = (0..clients).map(|client| format!("key-{client}")).collect();
    let access = Access { keys: keys.iter().map(|key| Key::new(key)).collect(), ..Access::default() };
    let limits = Limits { context: Some(96), sequences: 3, batch_tokens: 64, ..Limits::default() };
    let model = model();
    let small = |model: &std::sync::Arc<Model>| Engine::start(model.clone(), limits).expect("it fits");
    let body = |client: usize| {
        json!({"prompt": format!("The mill belongs to us all. My word is {:04}.", client * 977 % 10_000),
               "max_tokens": 16, "ignore_eos": true, "seed": 1})
    };
    // Each alone on a server of its own time: nothing of others is there.
    let alone: Vec<String> = {
        let server = Running::new(small(&model), Options { access: access.clone(), ..options() });
        keys.iter().enumerate().map(|(client, key)| answer(&server, &body(client), key).0).collect()
    };
    let server = Running::new(small(&model), Options { access, ..options() });
    // All prompts start alike, but a client's first request finds nothing.
    for (client, key) in keys.iter().enumerate() {
        let (text, cached) = answer(&server, &body(client), key);
        assert_eq!(text, alone[client]);
        assert_eq!(cached, 0, "client {client} reused {cached} tokens of others");
    }
    let hits = AtomicUsize::new(0);
    each(count, 8, |number| {
        // Some of a client in a row, since the cache discards soon.
        let client = number / 6 * 31 % clients;
        let (text, cached) = answer(&server, &body(client), &keys[client]);
        assert_eq!(text, alone[client]);
        hits.fetch_add(usize::from(cached > 0), Ordering::Relaxed);
    });
    let hits = hits.into_inner();
    println!("{count} requests of {clients} clients: {hits} reused what their client had asked before");
    assert!(hits > 0, "the cache was never hit, so nothing was shown");
}

/// The same bytes alone and in shared batches, with the cache cold and warm.
fn the_same(prompts: usize) {
    let model = model();
    let body = |prompt: usize, seed: usize| {
        let text = "wheat and rye ".repeat(1 + prompt % 9);
        json!({"prompt": format!("{text}{prompt}"), "max_tokens": 24, "ignore_eos": true, "seed": seed})
    };
    let cases: Vec<(usize, usize)> = (0..prompts).flat_map(|prompt| (0..3).map(move |seed| (prompt, seed))).collect();
    let alone: Vec<String> = {
        let server = Running::new(engine(&model, 1), options());
        cases.iter().map(|&(prompt, seed)| answer(&server, &body(prompt, seed), "").0).collect()
    };
    let server = Running::new(engine(&model, 8), options());
    let hits = AtomicUsize::new(0);
    for _ in ["cold", "warm"] {
        each(cases.len(), 12, |number| {
            let (prompt, seed) = cases[number];
            let (text, cached) = answer(&server, &body(prompt, seed), "");
            assert_eq!(text, alone[number], "prompt {prompt}, seed {seed}, {cached} tokens cached");
            hits.fetch_add(usize::from(cached > 0), Ordering::Relaxed);
        });
    }
    let hits = hits.into_inner();
    println!("{} requests, {hits} with cached tokens: 0 bytes differ", 2 * cases.len());
    assert!(hits > cases.len() / 2, "{hits} of {} requests hit the cache", 2 * cases.len());
}

/// The same bytes alone and with a KV cache for a quarter of what runs.
#[test]
fn a_small_cache_changes_no_answer() {
    let model = model();
    let limits = |sequences, kv_tokens| {
        let (context, batch_tokens) = (Some(256), 64);
        Limits { context, sequences, kv_tokens, batch_tokens, ..Limits::default() }
    };
    let body = |number: usize| {
        json!({"prompt": format!("{number} {}", "rye ".repeat(number % 7)), "max_tokens": 100 + number % 50,
               "ignore_eos": true, "seed": number})
    };
    let count = 40;
    let server = |limits| Running::new(Engine::start(model.clone(), limits).expect("it fits"), options());
    let alone: Vec<String> = {
        let server = server(limits(1, None));
        (0..count).map(|number| answer(&server, &body(number), "").0).collect()
    };
    let server = server(limits(8, Some(256)));
    let told = AtomicUsize::new(0);
    each(count, 8, |number| {
        let reply = server.ask(PATH, &body(number));
        assert_eq!(reply["choices"][0]["text"], alone[number]);
        let preemptions = reply["usage"]["gristmill"]["choices"][0]["preemptions"].as_u64().expect("a number");
        told.fetch_add(preemptions as usize, Ordering::Relaxed);
    });
    let told = told.into_inner();
    assert!(told > 5, "{told} preemptions");
    assert_eq!(server.metric("gristmill_preemptions_total"), told as f64);
}

#[test]
fn some_clients_go_away() {
    disconnecting(200);
}

#[test]
fn some_clients_are_isolated() {
    isolated(16, 100);
}

#[test]
fn some_answers_are_the_same() {
    the_same(10);
}

#[test]
#[ignore = "minutes"]
fn many_clients_go_away() {
    disconnecting(10_000);
}

#[test]
#[ignore = "minutes"]
fn many_clients_are_isolated() {
    isolated(64, 5_000);
}

#[test]
#[ignore = "minutes"]
fn many_answers_are_the_same() {
    the_same(200);
}

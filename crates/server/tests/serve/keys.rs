//! Keys: names, limits, places in the queue, use, and replacing them.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use gristmill_server::{Access, Key, Log, Options};
use serde_json::{Value, json};

use crate::server::{Reply, Running, engine, model, options};

const PATH: &str = "/v1/completions";

fn keys(lines: &[&str]) -> Vec<Key> {
    lines.iter().map(|line| line.parse().expect("a key")).collect()
}

/// A server with these keys, one sequence, and places for two more requests of each key.
fn server(lines: &[&str]) -> Running {
    let access = Access { keys: keys(lines), ..Access::default() };
    Running::new(engine(&model(), 1).with_queue(2), Options { access, ..options() })
}

fn ask(server: &Running, key: &str, body: &Value) -> Reply {
    server.post_text(PATH, &body.to_string(), &[("x-api-key", key)])
}

fn short() -> Value {
    json!({"prompt": "abc", "max_tokens": 2, "ignore_eos": true})
}

/// A request that runs until its client goes away.
fn long() -> Value {
    json!({"prompt": "abc", "max_tokens": 1400, "ignore_eos": true, "stream": true})
}

/// Sends requests, and waits until they run or wait.
fn start(server: &Running, key: &str, count: usize) -> Vec<std::net::TcpStream> {
    let body = long().to_string();
    let length = body.len();
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-length: {length}");
    let request = format!("{head}\r\n\r\n{body}");
    let streams = (0..count).map(|_| server.connect(request.as_bytes())).collect();
    let expected = format!("gristmill_requests{{model=\"tiny\"}} {count}");
    let started = std::time::Instant::now();
    while !server.get_with("/metrics", &[("x-api-key", key)]).text.lines().any(|line| line == expected) {
        assert!(started.elapsed().as_secs() < 20, "{count} requests do not start");
    }
    streams
}

/// A key whose requests fill its places is refused, and others are served.
#[test]
fn a_key_locks_out_no_other() {
    let server = server(&["one anna", "two ben"]);
    let running = start(&server, "one", 3);
    let refused = ask(&server, "one", &short());
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("queue_full")), "{}", refused.text);
    let statuses = std::thread::scope(|scope| {
        let others: Vec<_> = (0..3).map(|_| scope.spawn(|| ask(&server, "two", &short()).status)).collect();
        // Nobody waits for longer than the first request takes.
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(running);
        others.into_iter().map(|other| other.join().expect("a status")).collect::<Vec<_>>()
    });
    assert_eq!(statuses, [200, 200, 200]);
}

/// A request of one key has all sequences for a long time. Another key waits for its share of the sequences, not for the
/// end of a reply.
#[test]
fn a_key_does_not_wait_for_the_replies_of_another() {
    let access = Access { keys: keys(&["one anna", "two ben"]), ..Access::default() };
    let server = Running::new(engine(&model(), 2), Options { access, ..options() });
    let many = json!({"prompt": "abc", "n": 6, "max_tokens": 1400, "ignore_eos": true});
    let (waited, all) = std::thread::scope(|scope| {
        let started = Instant::now();
        let server = &server;
        let anna = scope.spawn(move || {
            let reply = ask(server, "one", &many);
            (reply, started.elapsed())
        });
        let running = "gristmill_requests_running{model=\"tiny\"} 2";
        while !server.get_with("/metrics", &[("x-api-key", "two")]).text.lines().any(|line| line == running) {
            assert!(started.elapsed().as_secs() < 20, "the request of anna does not start");
        }
        let asked = Instant::now();
        assert_eq!(ask(server, "two", &short()).status, 200);
        let waited = asked.elapsed();
        let (reply, all) = anna.join().expect("a reply");
        assert_eq!(reply.json()["usage"]["completion_tokens"], 6 * 1400, "{}", reply.text);
        (waited, all)
    });
    println!("waited for {waited:?} of {all:?}");
    // Three replies run one after another. The first of them would take a third.
    assert!(waited < all / 10, "waited for {waited:?} of {all:?}");
}

#[test]
fn limits_of_keys() {
    let server = server(&["slow rpm=2", "single one-at-a-time concurrent=1", "free"]);
    assert_eq!([0, 1].map(|_| ask(&server, "slow", &short()).status), [200, 200]);
    let refused = ask(&server, "slow", &short());
    let wait: u32 = refused.header("retry-after").and_then(|wait| wait.parse().ok()).expect("seconds");
    assert!(refused.status == 429 && (25..=30).contains(&wait), "{} after {wait} s", refused.text);
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    let embed = json!({"input": "abc"}).to_string();
    assert_eq!(server.post_text("/v1/embeddings", &embed, &[("x-api-key", "slow")]).status, 429);
    // What takes no time of the engine is not counted.
    assert_eq!(server.get_with("/v1/models", &[("x-api-key", "slow")]).status, 200);

    let running = start(&server, "single", 1);
    let refused = ask(&server, "single", &short());
    assert!(refused.status == 429 && refused.text.contains("1 completions of this key"), "{}", refused.text);
    drop(running);
    let started = std::time::Instant::now();
    while ask(&server, "single", &short()).status != 200 {
        assert!(started.elapsed().as_secs() < 20, "the place of a client that went away is not free");
    }
    assert!((0..5).all(|_| ask(&server, "free", &short()).status == 200));
}

/// Choices and prompts count, in a request as in several. What is refused with 400 does not.
#[test]
fn limits_count_completions() {
    let server = server(&["many rpm=3", "few concurrent=2", "embed rpm=2"]);
    let with = |name: &str, value: Value| {
        let mut body = short();
        body[name] = value;
        body
    };
    let prompts = |count: usize| with("prompt", json!(vec!["abc"; count]));
    let status = |key: &str, body: &Value| ask(&server, key, body).status;
    for (body, param) in [(with("n", json!(3)), "n"), (prompts(3), "prompt")] {
        let refused = ask(&server, "few", &body);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)), "{}", refused.text);
        assert!(refused.text.contains("concurrent=2"), "{}", refused.text);
    }
    assert_eq!([status("few", &with("n", json!(2))), status("few", &prompts(2))], [200, 200]);
    let running = start(&server, "few", 1);
    assert_eq!([status("few", &with("n", json!(2))), status("few", &short())], [429, 200]);
    drop(running);

    let wrong = [with("n", json!(4)), with("temperature", json!(-1)), with("prompt", json!("a".repeat(3_000)))];
    assert!(wrong.iter().all(|body| status("many", body) == 400));
    assert_eq!(["n", "best_of"].map(|name| status("many", &with(name, json!(2)))), [200, 400]);
    assert_eq!([status("many", &short()), status("many", &short())], [200, 429]);
    let embed = |input: &str| {
        let body = json!({"input": input}).to_string();
        server.post_text("/v1/embeddings", &body, &[("x-api-key", "embed")]).status
    };
    assert_eq!(["a".repeat(3_000), String::new()].map(|long| embed(&long)), [400, 400]);
    assert_eq!([embed("abc"), embed("abc"), embed("abc")], [200, 200, 429]);
}

#[test]
fn usage_of_keys() {
    let names: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let logged = names.clone();
    let log = Log::new(move |request| logged.lock().expect("a lock").push(request.key.clone()));
    let access = Access { keys: keys(&["one anna", "two"]), ..Access::default() };
    let server = Running::new(engine(&model(), 1), Options { access, log: Some(log), ..options() });
    for key in ["one", "one", "two", "three"] {
        ask(&server, key, &short());
    }
    let text = server.get_with("/metrics", &[("x-api-key", "two")]).text;
    for line in [
        "gristmill_key_ended_requests_total{key=\"anna\"} 2",
        "gristmill_key_generated_tokens_total{key=\"anna\"} 4",
        "gristmill_key_ended_requests_total{key=\"key-1\"} 1",
        "gristmill_key_prompt_tokens_total{key=\"key-1\"} 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    drop(server);
    let anna = || Some("anna".to_owned());
    let other = Some("key-1".to_owned());
    assert_eq!(*names.lock().expect("a lock"), [anna(), anna(), other.clone(), None, other]);
}

/// Replaced keys hold at once; one that stays keeps its cache and what it has used.
#[test]
fn keys_are_replaced() {
    let server = server(&["one anna rpm=3", "two"]);
    let prompt = json!({"prompt": "a prompt of more than one block", "max_tokens": 1});
    let cached = |key: &str| {
        let reply = ask(&server, key, &prompt);
        assert_eq!(reply.status, 200, "{key}: {}", reply.text);
        reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
    };
    assert_eq!((cached("one"), cached("two")), (0, 0));
    server.keys.replace(&keys(&["three", "new anna rpm=3"]));
    assert_eq!(["one", "two"].map(|key| ask(&server, key, &prompt).status), [401, 401]);
    assert_eq!(cached("three"), 0);
    assert!(cached("new") > 0, "a new key of a name is the same tenant");
    assert!(cached("new") > 0);
    assert_eq!(ask(&server, "new", &prompt).status, 429);
}

//! Clients that go away, queues that are full, servers that end.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Running, engine, model, options};

const PATH: &str = "/v1/completions";

/// A request that takes a while.
fn long() -> Value {
    json!({"prompt": "abc", "max_tokens": 190, "ignore_eos": true, "temperature": 1.0, "seed": 3})
}

fn wait_until(what: &str, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_client_that_goes_away_frees_its_place() {
    let server = Running::new(engine(&model(), 1), options());
    for _ in 0..20 {
        drop(server.begin(PATH, &long()));
    }
    wait_until("the end of all generations", || server.metric("gristmill_requests") == 0.0);
    let tokens = server.metric("gristmill_generated_tokens_total");
    assert!(tokens < 20.0 * 190.0, "{tokens} tokens were generated for nobody");
    // A fast machine may end one before it hears of it.
    let cancelled = server.ended("cancelled");
    assert!(cancelled > 10.0 && cancelled + server.ended("length") == 20.0, "{cancelled}");
    assert_eq!(server.ended("error"), 0.0);
    let mut short = long();
    short["max_tokens"] = json!(5);
    assert_eq!(server.ask(PATH, &short)["usage"]["completion_tokens"], 5);
}

#[test]
fn company_changes_nothing() {
    let server = Running::new(engine(&model(), 3), options());
    let body = |seed: usize| json!({"prompt": format!("prompt {}", seed % 3), "max_tokens": 40, "ignore_eos": true, "seed": seed});
    let alone: Vec<Value> = (0..12).map(|seed| server.ask(PATH, &body(seed))["choices"].clone()).collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            for (seed, alone) in alone.iter().enumerate() {
                let (server, body) = (&server, body(seed));
                scope.spawn(move || assert_eq!(&server.ask(PATH, &body)["choices"], alone));
            }
            let (server, body) = (&server, long());
            scope.spawn(move || drop(server.begin(PATH, &body)));
        }
    });
}

#[test]
fn a_full_queue_refuses_at_once() {
    let server = Running::new(engine(&model(), 1).with_queue(1), options());
    let running = [
        server.begin(PATH, &long()),
        server.begin(
            "/v1/chat/completions",
            &json!({
        "messages": [{"role": "user", "content": "abc"}], "max_tokens": 100, "ignore_eos": true}),
        ),
    ];
    let start = Instant::now();
    let reply = server.post(PATH, &long());
    let time = start.elapsed();
    // The first may have ended before on a fast machine; then there was a place.
    if reply.status != 200 {
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{}", reply.text);
        assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
        assert!(time < Duration::from_millis(500), "{time:?}");
    }
    let mut many = long();
    many["n"] = json!(3);
    let never = server.post(PATH, &many);
    assert_eq!((never.status, &never.json()["error"]["param"]), (400, &json!("n")), "{}", never.text);
    drop(running);
    wait_until("the end of all generations", || server.metric("gristmill_requests") == 0.0);
    assert_eq!(server.post(PATH, &long()).status, 200);
}

#[test]
fn running_replies_end_whole() {
    let mut server = Running::usual();
    let expected = server.events(PATH, &long());
    let mut running: Vec<_> = (0..4).map(|_| server.begin(PATH, &long())).collect();
    server.end();
    for reader in &mut running {
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("the whole reply");
        assert!(rest.trim_end().ends_with("data: [DONE]"), "{rest}");
        assert!(rest.matches("data: ").count() + 2 >= expected.len(), "{rest}");
    }
    let address = server.address;
    drop(server);
    assert!(std::net::TcpStream::connect(address).is_err());
}

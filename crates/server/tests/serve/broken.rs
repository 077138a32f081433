//! A device that fails, and logits that are not finite.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_engine::{LoadOptions, Model};
use serde_json::{Value, json};

use crate::damaged::{self, BAD};
use crate::server::{Running, engine, options};
use crate::tiny::{Random, Tiny};
use crate::{failing, speech};

const TEXT: &str = "/v1/completions";

/// A request of each interface that generates.
fn of_each_interface(tokens: usize) -> [(&'static str, Value); 4] {
    let messages = json!([{"role": "user", "content": "abc"}]);
    [
        (TEXT, json!({"prompt": "abc", "max_tokens": tokens, "ignore_eos": true, "seed": 1})),
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": tokens, "ignore_eos": true})),
        ("/v1/responses", json!({"input": "abc", "max_output_tokens": tokens, "ignore_eos": true})),
        ("/v1/messages", json!({"model": "tiny", "messages": messages, "max_tokens": tokens, "top_k": 50})),
    ]
}

#[test]
fn a_device_that_fails_makes_the_server_unhealthy() {
    let mut tiny = Tiny::llama();
    speech::teach(&mut tiny);
    let (backend, device) = failing::backend();
    let file = tiny.file(&mut Random::fresh());
    let model = Arc::new(Model::with_backend(file, backend, LoadOptions::default()).expect("a good model"));
    let server = Running::new(engine(&model, 3), options());
    let short = &of_each_interface(5)[0].1;
    let expected = server.ask(TEXT, short)["choices"].clone();
    let health = server.get("/health");
    assert_eq!((health.status, health.json()), (200, json!({"status": "ok"})));

    let long = of_each_interface(900);
    let mut streams: Vec<_> = long[..3].iter().map(|(path, body)| server.begin(path, body)).collect();
    std::thread::scope(|scope| {
        // It waits for a sequence.
        let waiting = scope.spawn(|| server.post(TEXT, &long[0].1));
        while server.metric("gristmill_requests") < 4.0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        device.fail_after(7);
        let waiting = waiting.join().expect("a reply");
        assert_eq!((waiting.status, &waiting.json()["error"]["type"]), (503, &json!("server_error")));
    });
    for stream in &mut streams {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("events");
        assert!(rest.contains("the device is gone") && !rest.contains("[DONE]"), "{rest}");
    }
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (503, &json!("unhealthy")));
    let reason = health.json()["reason"].as_str().expect("a reason").to_owned();
    assert!(reason.contains("the device is gone") && reason.contains("start it again"), "{reason}");
    for (path, body) in of_each_interface(5) {
        let start = Instant::now();
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 503, "{path}: {}", reply.text);
        assert!(reply.text.contains("the device is gone"), "{path}: {}", reply.text);
        assert!(start.elapsed() < Duration::from_millis(500), "{path} took {:?}", start.elapsed());
    }
    let start = Instant::now();
    while server.metric("gristmill_requests") > 0.0 {
        assert!(start.elapsed() < Duration::from_secs(10), "requests go on");
    }
    assert_eq!(server.ended("error"), 4.0);
    drop(server);

    device.repair();
    let server = Running::new(engine(&model, 3), options());
    assert_eq!(server.ask(TEXT, short)["choices"], expected);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn logits_that_are_not_finite_end_one_request() {
    let options_of_model = LoadOptions { device: "cpu".to_owned(), threads: Some(2), ..LoadOptions::default() };
    let model = Arc::new(Model::from_file(damaged::file(), options_of_model).expect("a good model"));
    let server = Running::new(engine(&model, 4), options());
    // The bad token is the control character U+0007.
    assert_eq!(BAD, 7);
    let good = json!({"prompt": "abc", "max_tokens": 60, "ignore_eos": true, "seed": 1,
                      "logit_bias": {BAD.to_string(): -1e30}});
    let alone = server.ask(TEXT, &good)["choices"].clone();
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..3).map(|_| scope.spawn(|| server.ask(TEXT, &good)["choices"].clone())).collect();
        for _ in 0..5 {
            let reply = server.post(TEXT, &json!({"prompt": "abc\u{7}", "max_tokens": 5}));
            assert_eq!((reply.status, &reply.json()["error"]["type"]), (500, &json!("server_error")));
            assert!(reply.text.contains("token_embd.weight") && reply.text.contains("not finite"), "{}", reply.text);
        }
        for other in others {
            assert_eq!(other.join().expect("a reply"), alone);
        }
    });
    assert_eq!(server.ended("error"), 5.0);
    let messages = json!([{"role": "user", "content": "a\u{7}"}]);
    for (path, mut body, event) in [
        (TEXT, json!({"prompt": "a\u{7}"}), "data: {\"error\""),
        ("/v1/chat/completions", json!({"messages": messages}), "data: {\"error\""),
        ("/v1/messages", json!({"model": "tiny", "messages": messages, "max_tokens": 5}), "event: error"),
        ("/v1/responses", json!({"input": "a\u{7}"}), "event: response.failed"),
    ] {
        let whole = server.post(path, &body);
        assert_eq!(whole.status, 500, "{path}: {}", whole.text);
        body["stream"] = json!(true);
        let events = server.post(path, &body).text;
        assert!(events.contains(event) && events.contains("not finite"), "{path}: {events}");
        assert!(!events.contains("[DONE]") && !events.contains("response.completed"), "{path}: {events}");
    }
    assert_eq!(server.ask(TEXT, &good)["choices"], alone);
    assert_eq!(server.get("/health").status, 200);
}

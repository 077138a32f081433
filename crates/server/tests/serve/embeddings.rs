//! `/v1/embeddings`: forms of inputs and vectors, refusals, and what ends a request early.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_engine::{LoadOptions, Model};
use gristmill_server::{Access, Options};
use serde_json::{Value, json};

use crate::server::{CONTEXT, Running, changed_model, engine, model, options};
use crate::tiny::{Random, Tiny};
use crate::{failing, speech};

const PATH: &str = "/v1/embeddings";

/// Floats of a vector in either encoding.
fn floats(vector: &Value) -> Vec<f32> {
    match vector {
        Value::Array(numbers) => numbers.iter().map(|number| number.as_f64().expect("a number") as f32).collect(),
        text => decoded(text.as_str().expect("Base64")),
    }
}

/// Decodes Base64 by a table of its digits.
fn decoded(text: &str) -> Vec<f32> {
    let digits: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect();
    let values = text.trim_end_matches('=').chars().map(|c| digits.iter().position(|&d| d == c).expect("a digit"));
    let bits: Vec<bool> = values.flat_map(|value| (0..6).rev().map(move |bit| value >> bit & 1 == 1)).collect();
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
    let bytes: Vec<u8> = bits.chunks_exact(8).map(byte).collect();
    assert_eq!((bytes.len() % 4, text.len() % 4), (0, 0));
    bytes.chunks(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

/// The vectors of an input, in its order.
fn vectors(server: &Running, input: &Value) -> Vec<Vec<f32>> {
    let reply = server.ask(PATH, &json!({"input": input}));
    let data = reply["data"].as_array().expect("a list");
    for (index, item) in data.iter().enumerate() {
        assert_eq!((&item["object"], &item["index"]), (&json!("embedding"), &json!(index)));
    }
    data.iter().map(|item| floats(&item["embedding"])).collect()
}

#[test]
fn each_form_of_input_and_of_vectors() {
    let (model, server) = {
        let model = model();
        (model.clone(), Running::new(engine(&model, 4), options()))
    };
    let width = model.spec().hidden;
    let tokens = |text: &str| server.ask("/tokenize", &json!({"prompt": text}))["tokens"].clone();
    let one = vectors(&server, &json!("abc"));
    assert_eq!((one.len(), one[0].len()), (1, width));
    let length: f64 = one[0].iter().map(|&x| f64::from(x).powi(2)).sum();
    assert!((length - 1.0).abs() < 1e-6, "{length}");
    assert_eq!(vectors(&server, &json!(["abc"])), one);
    assert_eq!(vectors(&server, &tokens("abc")), one);
    let marked = |more: Value| {
        let mut body = json!({"input": "a<|im_end|>"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.ask(PATH, &body)["usage"]["prompt_tokens"].clone()
    };
    assert_eq!(marked(json!({})), 3);
    assert_eq!(marked(json!({"add_special_tokens": false})), 2);
    assert_eq!(marked(json!({"parse_special": false})), 2 + "<|im_end|>".len());
    let texts = ["abc", "a longer text of several words", "abc", "x"];
    let several = vectors(&server, &json!(texts));
    assert_eq!((several.len(), &several[0], &several[2]), (4, &one[0], &one[0]));
    assert!(several[1] != several[3]);
    assert_eq!(vectors(&server, &json!(texts.map(tokens))), several);

    let whole = json!({"input": texts, "model": "tiny", "encoding_format": "float", "dimensions": width, "user": "u"});
    let reply = server.post(PATH, &whole);
    assert_eq!((reply.status, reply.header("x-gristmill-ignored")), (200, None), "{}", reply.text);
    let reply = reply.json();
    let count: usize = texts.iter().map(|text| tokens(text).as_array().expect("a list").len()).sum();
    assert_eq!((&reply["object"], &reply["model"]), (&json!("list"), &json!("tiny")));
    assert_eq!(reply["usage"], json!({"prompt_tokens": count, "total_tokens": count}));
    let encoded = server.ask(PATH, &json!({"input": texts, "encoding_format": "base64"}));
    for (at, vector) in several.iter().enumerate() {
        assert!(encoded["data"][at]["embedding"].is_string());
        assert_eq!(&floats(&encoded["data"][at]["embedding"]), vector);
        assert_eq!(&floats(&reply["data"][at]["embedding"]), vector);
    }
}

#[test]
fn what_is_refused() {
    let (model, server) = {
        let model = model();
        (model.clone(), Running::new(engine(&model, 2), options()))
    };
    let width = model.spec().hidden;
    let refused = |body: Value, param: &str| {
        let reply = server.post(PATH, &body);
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{}", reply.text);
        error
    };
    for (input, param) in [
        (json!(""), "input"),
        (json!([]), "input"),
        (json!(["a", ""]), "input[1]"),
        (json!([[1], []]), "input[1]"),
        (json!(vec!["a"; 2_049]), "input"),
        (json!([[1, 2], [1, 260]]), "input[1]"),
        (json!([1, -1]), "input"),
        (json!([1, 1.5]), "input"),
        (json!(["a", 1]), "input"),
        (json!({"text": "a"}), "input"),
        (Value::Null, "input"),
    ] {
        refused(json!({"input": input}), param);
    }
    refused(json!({"model": "tiny"}), "input");
    let error = refused(json!({"input": ["a", "x".repeat(CONTEXT + 1)]}), "input[1]");
    assert_eq!(error["code"], "context_length_exceeded");
    for dimensions in [json!(width - 1), json!(width + 1), json!(0), json!(-1), json!("8")] {
        refused(json!({"input": "a", "dimensions": dimensions}), "dimensions");
    }
    refused(json!({"input": "a", "encoding_format": "hex"}), "encoding_format");
    assert_eq!(server.post(PATH, &json!({"input": "a", "model": "other"})).status, 404);
    let ignored = server.post(PATH, &json!({"input": "a", "colour": 1}));
    assert_eq!((ignored.status, ignored.header("x-gristmill-ignored")), (200, Some("colour")));
    assert_eq!(server.ended("embedded"), 1.0);
    assert_eq!(vectors(&server, &json!(vec!["a"; 2_048])).len(), 2_048);

    let strict = Running::new(engine(&model, 1), Options { strict: true, ..options() });
    assert_eq!(strict.post(PATH, &json!({"input": "a", "colour": 1})).json()["error"]["param"], "colour");
    let ranker = changed_model(|tiny| tiny.set("llama.pooling_type", 4_u32));
    let ranker = Running::new(engine(&ranker, 1), options());
    let reply = ranker.post(PATH, &json!({"input": "a"}));
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("model")), "{}", reply.text);
    assert!(reply.text.contains("pooling_type"), "{}", reply.text);
}

#[test]
fn keys_are_needed_and_share_no_cache() {
    let access = Access { keys: vec!["one".into(), "two".into()], ..Access::default() };
    let server = Running::new(engine(&model(), 2), Options { access, ..options() });
    let body = json!({"input": "a text of more than one block"}).to_string();
    assert_eq!(server.post_text(PATH, &body, &[]).status, 401);
    let vectors = ["one", "one", "two"].map(|key| server.post_text(PATH, &body, &[("x-api-key", key)]).json());
    assert!(vectors.iter().all(|reply| reply == &vectors[0]));
}

#[test]
fn company_changes_nothing() {
    let mean = changed_model(|tiny| tiny.set("llama.pooling_type", 1_u32));
    for model in [model(), mean] {
        let server = Running::new(engine(&model, 4), options());
        let inputs: Vec<String> = (0..12).map(|number| format!("{number} {}", "rye ".repeat(number % 5 * 9))).collect();
        let alone: Vec<Vec<f32>> = inputs.iter().flat_map(|input| vectors(&server, &json!(input))).collect();
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let body = json!({"prompt": "abc", "max_tokens": 100, "ignore_eos": true, "seed": seed});
                let server = &server;
                scope.spawn(move || server.ask("/v1/completions", &body));
            }
            for _ in 0..4 {
                let (server, inputs, alone) = (&server, &inputs, &alone);
                scope.spawn(move || assert_eq!(&vectors(server, &json!(inputs)), alone));
            }
        });
    }
}

fn wait_until(what: &str, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Inputs that take a while.
fn long() -> Value {
    json!({"input": (0..500).map(|number| format!("{number} {}", "grain ".repeat(120))).collect::<Vec<_>>()})
}

/// Sends a request and does not read its reply.
fn begin(server: &Running, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut stream = TcpStream::connect(server.address).expect("it listens");
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).expect("it reads");
    stream
}

#[test]
fn a_client_that_goes_away_frees_its_place() {
    let server = Running::new(engine(&model(), 2).with_queue(0), options());
    let streams = [begin(&server, &long()), begin(&server, &long())];
    wait_until("both requests", || server.metric("gristmill_requests") == 2.0);
    let refused = server.post(PATH, &json!({"input": "a"}));
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{}", refused.text);
    drop(streams);
    wait_until("the end of all requests", || server.metric("gristmill_requests") == 0.0);
    wait_until("the end of all texts", || server.metric("gristmill_requests_running") == 0.0);
    assert_eq!(vectors(&server, &json!("a")).len(), 1);
    for (outcome, count) in [("cancelled", 2.0), ("embedded", 1.0), ("error", 0.0), ("stop", 0.0)] {
        assert_eq!(server.ended(outcome), count, "{outcome}");
    }
}

#[test]
fn a_device_that_fails_ends_it() {
    let mut tiny = Tiny::llama();
    speech::teach(&mut tiny);
    let (backend, device) = failing::backend();
    let file = tiny.file(&mut Random::fresh());
    let model = Arc::new(Model::with_backend(file, backend, LoadOptions::default()).expect("a good model"));
    let server = Running::new(engine(&model, 2), options());
    assert_eq!(vectors(&server, &json!("abc")).len(), 1);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| server.post(PATH, &long()));
        wait_until("the request", || server.metric("gristmill_requests") == 1.0);
        device.fail_after(7);
        let reply = running.join().expect("a reply");
        assert_eq!((reply.status, &reply.json()["error"]["type"]), (503, &json!("server_error")));
        assert!(reply.text.contains("the device is gone"), "{}", reply.text);
    });
    assert_eq!(server.post(PATH, &json!({"input": "a"})).status, 503);
    assert_eq!(server.ended("error"), 1.0);
}

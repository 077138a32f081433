//! Several models: loaded on demand, unloaded when they are idle or when another one needs the memory.

use std::io::{BufRead, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use gristmill_engine::Model;
use gristmill_server::{LoadError, LoadedModel, OfferedModel, Options};
use serde_json::{Value, json};

use crate::server::{Running, engine, model, options};

/// Memory for a number of models. The test has one reference to each model, and an engine has others.
struct Memory {
    room: usize,
    models: Vec<Arc<Model>>,
    loads: Arc<AtomicUsize>,
}

impl Memory {
    fn new(room: usize, models: usize) -> Memory {
        Memory { room, models: (0..models).map(|_| model()).collect(), loads: Arc::default() }
    }

    /// Whether the engine of a model exists.
    fn has(&self, index: usize) -> bool {
        Arc::strong_count(&self.models[index]) > 1
    }

    /// The model with this index, which is loaded on demand.
    fn offer(&self, name: &str, index: usize) -> OfferedModel {
        let models: Vec<Weak<Model>> = self.models.iter().map(Arc::downgrade).collect();
        let (room, loads) = (self.room, self.loads.clone());
        let used = move || models.iter().filter(|model| model.strong_count() > 1).count();
        let own = Arc::downgrade(&self.models[index]);
        OfferedModel::on_demand(name, move |progress| {
            progress.set(1, 4);
            if used() >= room {
                return Err(LoadError::Memory(format!("{room} models fit")));
            }
            loads.fetch_add(1, Ordering::Relaxed);
            let model = own.upgrade().ok_or_else(|| LoadError::Failed("the test has ended".to_owned()))?;
            Ok(LoadedModel::from(engine(&model, 2).with_queue(100)))
        })
    }
}

fn short(model: &str) -> Value {
    json!({"model": model, "prompt": "abc", "max_tokens": 3, "ignore_eos": true})
}

/// Choices that run for longer than a load waits for room.
fn long(model: &str) -> Value {
    json!({"model": model, "prompt": "abc", "max_tokens": 1400, "ignore_eos": true, "n": 40})
}

/// The status of each model.
fn statuses(server: &Running) -> Vec<(String, String)> {
    let models = server.get("/v1/models").json();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let entry = |entry: &Value| (text(&entry["id"]), text(&entry["status"]["value"]));
    models["data"].as_array().expect("a list").iter().map(entry).collect()
}

fn wait_until(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is(server: &Running, expected: &[(&str, &str)]) -> bool {
    statuses(server).iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected.iter().copied())
}

#[test]
fn models_are_loaded_on_demand_and_answer_by_their_names() {
    let memory = Memory::new(2, 2);
    let second = memory.offer("b", 1).with_aliases(vec!["gpt-*".to_owned(), "other".to_owned()]);
    let server = Running::of(vec![memory.offer("a", 0), second], options());
    assert!(is(&server, &[("a", "unloaded"), ("b", "unloaded"), ("other", "unloaded")]));
    let facts = server.get("/model");
    assert_eq!((facts.status, &facts.json()["error"]["code"]), (503, &json!("model_not_loaded")));
    for path in ["/server_info?model=a", "/server_info", "/get_server_info?model=a", "/model_info?model=a"] {
        let refused = server.get(path);
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("model_not_loaded")), "{path}");
    }
    assert_eq!(server.get("/health").status, 200);
    for (asked, name) in [("b", "b"), ("gpt-5", "b"), ("a", "a")] {
        assert_eq!(server.ask("/v1/completions", &short(asked))["model"], name);
    }
    // Without a name, the first one answers.
    assert_eq!(server.ask("/v1/completions", &json!({"prompt": "a", "max_tokens": 1}))["model"], "a");
    assert!(is(&server, &[("a", "loaded"), ("b", "loaded"), ("other", "loaded")]));
    assert_eq!(memory.loads.load(Ordering::Relaxed), 2);
    assert_eq!(server.get("/model?model=other").json()["name"], "b");
    assert_eq!(server.get("/props?model=a").json()["model_alias"], "a");
    assert_eq!(server.get("/model?model=x").status, 404);
    let unknown = server.post("/v1/completions", &short("c"));
    let error = &unknown.json()["error"];
    assert_eq!((unknown.status, &error["code"]), (404, &json!("model_not_found")));
    assert_eq!(error["message"], "this server has no model \"c\"; request one of \"a\", \"b\"");
    let metrics = server.get("/metrics").text;
    for line in [
        "gristmill_ended_requests_total{model=\"b\",outcome=\"length\"} 2",
        "gristmill_generated_tokens_total{model=\"a\"} 4",
        "gristmill_model_load_seconds_count{model=\"b\"} 1",
        "gristmill_requests_running{model=\"b\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
}

#[test]
fn a_load_without_memory_unloads_the_model_that_is_idle_for_longest() {
    let memory = Memory::new(2, 4);
    let models = ["a", "b", "c", "d"].into_iter().enumerate();
    let models = models.map(|(index, name)| match name {
        "a" => memory.offer(name, index).pinned(),
        _ => memory.offer(name, index),
    });
    let server = Running::of(models.collect(), options());
    // Pinned models are loaded at the start.
    wait_until("a", || statuses(&server)[0].1 == "loaded");
    for name in ["b", "c", "b"] {
        server.ask("/v1/completions", &short(name));
    }
    assert!(is(&server, &[("a", "loaded"), ("b", "loaded"), ("c", "unloaded"), ("d", "unloaded")]));
    assert!(memory.has(0) && memory.has(1) && !memory.has(2));
    let running = server.begin("/v1/completions", &long("b"));
    let refused = server.post("/v1/completions", &short("d"));
    let error = &refused.json()["error"];
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("10")), "{error}");
    assert!(error["message"].as_str().expect("a text").contains("next to b"), "{error}");
    drop(running);
    wait_until("room", || server.post("/v1/completions", &short("d")).status == 200);
    assert!(is(&server, &[("a", "loaded"), ("b", "unloaded"), ("c", "unloaded"), ("d", "loaded")]));
}

#[test]
fn idle_models_are_unloaded() {
    let memory = Memory::new(2, 2);
    let idle = Some(Duration::from_millis(200));
    let server = Running::of(vec![memory.offer("a", 0), memory.offer("b", 1).pinned()], Options { idle, ..options() });
    let running = server.begin("/v1/completions", &long("a"));
    std::thread::sleep(Duration::from_millis(800));
    assert!(memory.has(0), "a running request keeps its model");
    drop(running);
    wait_until("the end of a", || !memory.has(0));
    wait_until("a", || is(&server, &[("a", "unloaded"), ("b", "loaded")]));
    server.ask("/v1/completions", &short("a"));
    assert_eq!(memory.loads.load(Ordering::Relaxed), 3);
}

#[test]
fn models_are_loaded_and_unloaded_by_name() {
    let memory = Memory::new(2, 2);
    let server = Running::of(vec![memory.offer("a", 0), memory.offer("b", 1).pinned()], options());
    wait_until("b", || memory.has(1));
    for _ in 0..2 {
        assert_eq!(server.ask("/models/load", &json!({"model": "a"})), json!({"success": true}));
    }
    let running = server.begin("/v1/completions", &long("a"));
    for name in ["a", "b"] {
        let refused = server.post("/models/unload", &json!({"model": name}));
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (409, &json!("model_in_use")), "{name}");
    }
    drop(running);
    wait_until("the end", || server.post("/models/unload", &json!({"model": "a"})).status == 200);
    assert!(!memory.has(0));
    assert_eq!(server.post("/models/load", &json!({"model": "x"})).status, 404);
}

/// A model whose load waits for the test.
fn slow(memory: &Memory) -> (OfferedModel, Sender<Result<(), LoadError>>) {
    let (send, results): (_, Receiver<Result<(), LoadError>>) = mpsc::channel();
    let (results, model) = (Mutex::new(results), Arc::downgrade(&memory.models[0]));
    let offered = OfferedModel::on_demand("slow", move |progress| {
        progress.set(1, 4);
        let result = results.lock().expect("one load at a time").recv();
        result.unwrap_or_else(|_| Err(LoadError::Failed("the test has ended".to_owned())))?;
        Ok(LoadedModel::from(engine(&model.upgrade().expect("the test has it"), 2)))
    });
    (offered, send)
}

#[test]
fn replies_in_events_say_how_much_is_loaded() {
    let memory = Memory::new(1, 1);
    let (offered, loads) = slow(&memory);
    let server = Running::of(vec![offered], options());
    let mut reader = server.begin("/v1/completions", &short("slow"));
    // `begin` has read the first comment.
    let mut line = String::new();
    while !line.starts_with(": loading") {
        line.clear();
        assert!(reader.read_line(&mut line).expect("a line") > 0);
    }
    assert_eq!(line, ": loading slow 25%\n");
    let whole = std::thread::scope(|scope| {
        let whole = scope.spawn(|| server.ask("/v1/completions", &short("slow")));
        loads.send(Ok(())).expect("it loads");
        whole.join().expect("a reply")
    });
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert!(!rest.contains("error"), "{rest}");
}

#[test]
fn failed_loads_are_reported_and_tried_again() {
    let memory = Memory::new(1, 1);
    let (offered, loads) = slow(&memory);
    let server = Running::of(vec![offered], options());
    let failed = || Err(LoadError::Failed("/secret/path is damaged".to_owned()));
    loads.send(failed()).expect("it loads");
    let reply = server.post("/v1/completions", &short("slow"));
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (500, &json!("load_failed")));
    assert!(!reply.text.contains("secret"), "{}", reply.text);
    let status = &server.get("/v1/models").json()["data"][0]["status"];
    assert_eq!(status, &json!({"value": "unloaded", "failed": true}));
    // In events: each interface in its own form.
    let body =
        json!({"model": "slow", "max_tokens": 3, "messages": [{"role": "user", "content": "a"}], "stream": true});
    let response = json!({"model": "slow", "input": "a", "stream": true});
    for (path, body, expected) in [
        ("/v1/chat/completions", &body, "data: {\"error\":{"),
        ("/v1/messages", &body, "event: error\ndata: {\"type\":\"error\","),
        ("/v1/responses", &response, "event: error\ndata: {\"type\":\"error\","),
    ] {
        let text = std::thread::scope(|scope| {
            let reply = scope.spawn(|| server.post(path, body));
            std::thread::sleep(Duration::from_millis(1300));
            loads.send(failed()).expect("it loads");
            reply.join().expect("a reply")
        });
        assert_eq!(text.status, 200);
        assert!(text.text.contains(expected) && text.text.contains("cannot be loaded"), "{path}: {}", text.text);
    }
    loads.send(Ok(())).expect("it loads");
    server.ask("/v1/completions", &short("slow"));
}

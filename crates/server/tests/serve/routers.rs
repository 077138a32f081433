//! What routers of vLLM and SGLang ask a worker, and the ids of tokens that a router continues with.

use gristmill_server::{Access, Options};
use serde_json::{Value, json};

use crate::server::{Running, engine, model, options};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

#[test]
fn a_router_registers_a_worker() {
    let server = Running::new(engine(&model(), 3), options());
    for path in ["/server_info", "/get_server_info"] {
        let info = server.get(path).json();
        assert_eq!((&info["served_model_name"], &info["max_running_requests"]), (&json!("tiny"), &json!(3)), "{info}");
        assert_eq!((&info["dp_size"], &info["version"]), (&json!(1), &json!(env!("CARGO_PKG_VERSION"))), "{info}");
        assert_eq!(info["max_total_tokens"], server.metric("gristmill_kv_cache_capacity_tokens") as u64, "{info}");
    }
    for path in ["/model_info", "/get_model_info"] {
        let info = server.get(path).json();
        assert_eq!((&info["model_path"], &info["is_generation"]), (&json!("tiny"), &json!(true)), "{info}");
        assert_eq!((&info["model_type"], &info["architectures"]), (&json!("llama"), &json!(["llama"])), "{info}");
    }
}

#[test]
fn a_router_asks_for_the_load() {
    let server = Running::new(engine(&model(), 1), options());
    let idle = json!([{"dp_rank": 0, "num_reqs": 0, "num_waiting_reqs": 0, "num_tokens": 0}]);
    assert_eq!(server.get("/get_load").json(), idle);
    let messages = json!([{"role": "user", "content": "abc"}]);
    let long = json!({"messages": messages, "max_tokens": 1400, "ignore_eos": true});
    let body = long.to_string();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    let running: Vec<_> = (0..3).map(|_| server.connect(format!("{head}{body}").as_bytes())).collect();
    let start = std::time::Instant::now();
    // The first request has blocks after its first step.
    let load = loop {
        let load = server.get("/get_load").json()[0].clone();
        if load["num_waiting_reqs"] == 2 && load["num_tokens"].as_u64() >= Some(16) {
            break load;
        }
        assert!(start.elapsed().as_secs() < 20, "two requests do not wait: {load}");
    };
    assert_eq!(load["num_reqs"], 3, "{load}");
    let loads = server.get("/v1/loads?include=core").json();
    let (rank, all) = (&loads["loads"][0], &loads["aggregate"]);
    assert_eq!((&rank["num_running_reqs"], &rank["num_waiting_reqs"]), (&json!(1), &json!(2)), "{loads}");
    assert_eq!((&all["total_reqs"], &rank["dp_rank"]), (&json!(3), &json!(0)), "{loads}");
    assert!(rank["token_usage"].as_f64().is_some_and(|usage| 0.0 < usage && usage <= 1.0), "{loads}");
    drop(running);
}

/// A flushed cache has nothing for the next request of the key, and what others have computed.
#[test]
fn the_cache_is_flushed() {
    let access = Access { keys: vec!["one".into(), "two".into()], ..Access::default() };
    let server = Running::new(engine(&model(), 2), Options { access, ..options() });
    let body = json!({"prompt": "a prompt of more than two whole blocks of tokens", "max_tokens": 1}).to_string();
    let cached = |key: &str| {
        let reply = server.post_text(TEXT, &body, &[("x-api-key", key)]).json();
        reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
    };
    assert_eq!((cached("one"), cached("two")), (0, 0));
    assert!(cached("one") > 16 && cached("two") > 16);
    let flushed = server.post_text("/flush_cache", "", &[("x-api-key", "one")]);
    assert_eq!((flushed.status, &flushed.json()["success"]), (200, &json!(true)), "{}", flushed.text);
    assert_eq!(cached("one"), 0);
    assert!(cached("two") > 16);
    assert_eq!(server.post_text("/flush_cache", "", &[]).status, 401);
}

/// An idle server frees the blocks at once.
#[test]
fn a_flushed_cache_is_empty() {
    let server = Running::new(engine(&model(), 2), options());
    server.ask(TEXT, &json!({"prompt": "a prompt of more than two whole blocks of tokens", "max_tokens": 20}));
    let wait_until = |what: &str, ready: fn(f64) -> bool| {
        let start = std::time::Instant::now();
        while !ready(server.metric("gristmill_kv_cache_prefix_tokens")) {
            assert!(start.elapsed().as_secs() < 20, "{what}");
        }
    };
    wait_until("nothing is kept", |tokens| tokens > 0.0);
    assert_eq!(server.post("/flush_cache", &json!({})).status, 200);
    wait_until("blocks stay", |tokens| tokens == 0.0);
    assert_eq!(server.metric("gristmill_kv_cache_used_tokens"), 0.0);
}

#[test]
fn a_router_asks_for_the_tokens_of_a_prompt() {
    let server = Running::usual();
    let messages = json!([{"role": "system", "content": "brief"}, {"role": "user", "content": "wheat and rye"}]);
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    let chat = json!({"messages": messages, "tools": tools});
    let tokens = server.ask("/tokenize", &chat)["tokens"].clone();
    assert_eq!(server.ask("/v1/chat/completions/render", &chat), json!({"token_ids": tokens}));
    let response = json!({"instructions": "brief", "input": "wheat and rye"});
    let plain = server.ask("/tokenize", &json!({"messages": messages}))["tokens"].clone();
    assert_eq!(server.ask("/v1/responses/render", &response), json!({"token_ids": plain}));
    let count = plain.as_array().expect("a list").len();
    let counted = json!({"object": "response.input_tokens", "input_tokens": count});
    assert_eq!(server.ask("/v1/responses/input_tokens", &response), counted);
    let long = server.ask("/v1/responses/input_tokens", &json!({"input": "rye ".repeat(650)}));
    assert!(long["input_tokens"].as_u64().is_some_and(|tokens| tokens > 1_500), "more than the context: {long}");
    let text = |text: &str| server.ask("/tokenize", &json!({"prompt": text}))["tokens"].clone();
    let rendered = server.ask("/v1/completions/render", &json!({"prompt": "wheat"}));
    assert_eq!(rendered, json!([{"token_ids": text("wheat")}]));
    let rendered = server.ask("/v1/completions/render", &json!({"prompt": ["wheat", "rye"]}));
    assert_eq!(rendered, json!([{"token_ids": text("wheat")}, {"token_ids": text("rye")}]));
    let wrong = server.post("/v1/completions/render", &json!({"prompt": ["wheat", ""]}));
    assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!("prompt[1]")), "{}", wrong.text);
    assert_eq!(server.metric("gristmill_generated_tokens_total"), 0.0);
}

fn ids(value: &Value) -> Vec<u64> {
    let list = value.as_array().unwrap_or_else(|| panic!("{value} is no list"));
    list.iter().map(|id| id.as_u64().expect("an id")).collect()
}

/// The ids of the reply's tokens are the same whole and in events, and continue where a stream was cut.
#[test]
fn ids_of_tokens_are_returned() {
    let server = Running::usual();
    let text = json!({"prompt": "abc", "max_tokens": 12, "seed": 5, "ignore_eos": true, "return_token_ids": true});
    let whole = server.ask(TEXT, &text)["choices"][0].clone();
    let (prompt, all) = (ids(&whole["prompt_token_ids"]), ids(&whole["token_ids"]));
    assert_eq!(prompt, ids(&server.ask("/tokenize", &json!({"prompt": "abc"}))["tokens"]));
    assert_eq!(all.len(), 12);
    let events = server.events(TEXT, &text);
    let choices: Vec<&Value> = events.iter().filter_map(|event| event["choices"].get(0)).collect();
    assert_eq!(choices.iter().flat_map(|choice| ids(&choice["token_ids"])).collect::<Vec<_>>(), all);
    let prompts: Vec<&&Value> = choices.iter().filter(|choice| choice.get("prompt_token_ids").is_some()).collect();
    assert!(prompts.len() == 1 && ids(&prompts[0]["prompt_token_ids"]) == prompt, "{choices:?}");
    // Another replica continues with the ids, and ends as this one would have.
    let so_far: Vec<u64> = prompt.iter().chain(&all[..7]).copied().collect();
    let greedy = |prompt: Value, tokens: usize| {
        let body = json!({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true, "return_token_ids": true});
        ids(&server.ask(TEXT, &body)["choices"][0]["token_ids"])
    };
    let expected = greedy(json!(so_far), 9);
    let cut: Vec<u64> = so_far.iter().chain(&expected[..4]).copied().collect();
    assert_eq!(greedy(json!(cut), 5), expected[4..]);

    let chat = json!({"messages": [{"role": "user", "content": "abc"}], "max_tokens": 12, "seed": 5, "n": 2,
                      "ignore_eos": true, "return_token_ids": true});
    let whole = server.ask(CHAT, &chat);
    let tokens = server.ask("/tokenize", &json!({"messages": chat["messages"]}))["tokens"].clone();
    assert_eq!(whole["prompt_token_ids"], tokens);
    let events = server.events(CHAT, &chat);
    for index in 0..2 {
        let all = ids(&whole["choices"][index]["token_ids"]);
        let of_choice = |event: &&Value| event["choices"][0]["index"] == index;
        let of_choice: Vec<&Value> = events.iter().filter(of_choice).collect();
        let streamed = of_choice.iter().filter_map(|event| event["choices"][0].get("token_ids"));
        assert_eq!(streamed.flat_map(ids).collect::<Vec<_>>(), all);
        assert_eq!((all.len(), &of_choice[0]["prompt_token_ids"]), (12, &tokens));
        assert!(of_choice[1..].iter().all(|event| event.get("prompt_token_ids").is_none()));
    }
    let without = server.ask(CHAT, &json!({"messages": chat["messages"], "max_tokens": 1}));
    assert!(!without.to_string().contains("token_ids"), "{without}");
    let refused = server.post("/v1/responses", &json!({"input": "abc", "return_token_ids": true}));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("return_token_ids")));
}

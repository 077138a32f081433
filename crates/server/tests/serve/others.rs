//! The tokenizer, the model's description, counters, keys and names.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use gristmill_engine::{LoadOptions, Model, clock};
use gristmill_server::{Access, Options};
use serde_json::{Value, json};

use crate::server::{CONTEXT, Reply, Running, engine, model, offered, options};
use crate::speech;
use crate::tiny::{Random, Tiny};

#[test]
fn tokens_and_back() {
    let server = Running::usual();
    let found = server.ask("/tokenize", &json!({"prompt": "abc <|im_end|>", "return_token_strs": true}));
    assert_eq!((&found["max_model_len"], &found["tokens"][0]), (&json!(CONTEXT), &json!(257)));
    assert_eq!((&found["token_strs"][1], &found["token_strs"][2]), (&json!("ab"), &json!("c")));
    let without = server.ask("/tokenize", &json!({"prompt": "abc <|im_end|>", "add_special_tokens": false}));
    assert_eq!(without["count"].as_u64().map(|n| n + 1), found["count"].as_u64());
    assert_eq!(without["tokens"].as_array().and_then(|ids| ids.last()), Some(&json!(speech::END)));
    let ids = |body: Value| server.ask("/tokenize", &body)["tokens"].clone();
    let plain = ids(json!({"prompt": "abc <|im_end|>", "parse_special": false}));
    assert_eq!(plain.as_array().map(Vec::len), Some(1 + 3 + "<|im_end|>".len()));
    assert_eq!(ids(json!({"prompt": "<|begin|>c"})), json!([257, 99]), "BOS once");
    // The fields of llama-server.
    assert_eq!(ids(json!({"content": "ab"})), json!([256]));
    assert_eq!(ids(json!({"content": "ab", "add_special": true})), json!([257, 256]));
    let pieces = ids(json!({"content": "ab\u{e9}<|im_end|>", "with_pieces": true}));
    let piece = |id: u32, piece: Value| json!({"id": id, "piece": piece});
    assert_eq!(pieces[0], piece(256, json!("ab")));
    assert_eq!((&pieces[1], &pieces[3]), (&piece(0xc3, json!([0xc3])), &piece(speech::END, json!("<|im_end|>"))));
    let back = server.ask("/detokenize", &json!({"tokens": without["tokens"]}));
    assert_eq!(back["prompt"], "abc <|im_end|>");
    let messages = json!([{"role": "user", "content": "abc"}]);
    let chat = server.ask("/tokenize", &json!({"messages": messages}));
    let prompt = server.ask("/apply-template", &json!({"messages": messages}))["prompt"].clone();
    assert_eq!(prompt, "<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(server.ask("/detokenize", &json!({"tokens": chat["tokens"]}))["prompt"], prompt);
    let other = json!({"prompt": "ab", "colour": 1});
    assert_eq!(server.post("/tokenize", &other).header("x-gristmill-ignored"), Some("colour"));
    let info = server.get("/tokenizer_info").json();
    assert_eq!((&info["bos_token"], &info["eos_token"]), (&json!("<|begin|>"), &json!("<|im_end|>")));
    assert!(info["chat_template"].as_str().is_some_and(|template| template.contains("im_start")));
}

/// What is shown of a conversation is what its chat would run, with all fields of a chat.
#[test]
fn a_conversation_is_shown_as_it_would_run() {
    let server = Running::usual();
    let user = json!({"role": "user", "content": "abc"});
    let tool = json!({"type": "function", "function": {"name": "pick", "parameters": {"type": "object"}}});
    let started = json!([user, {"role": "assistant", "content": "So "}]);
    let usual = server.ask("/apply-template", &json!({"messages": [user]}))["prompt"].clone();
    for (more, shown) in [
        (json!({}), ""),
        (json!({"enable_thinking": false}), "assistant\n<think></think>"),
        (json!({"chat_template_kwargs": {"enable_thinking": false}}), "assistant\n<think></think>"),
        (json!({"reasoning_effort": "none"}), "assistant\n<think></think>"),
        (json!({"response_format": {"type": "json_object"}}), "assistant\n<think></think>"),
        (json!({"tools": [tool], "temperature": 0.5, "stream": true}), "pick"),
        (json!({"tools": [tool], "tool_choice": "required"}), "<tool_call>\n"),
        (json!({"tools": [tool], "tool_choice": "any"}), "<tool_call>\n"),
        (json!({"messages": started, "continue_final_message": true, "add_generation_prompt": false}), "So "),
    ] {
        let mut body = json!({"messages": [user], "max_tokens": 1});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let prompt = server.ask("/apply-template", &body)["prompt"].clone();
        assert!(prompt.as_str().is_some_and(|prompt| prompt.contains(shown)), "{more}: {prompt}");
        assert_eq!(prompt == usual, more == json!({}), "{more}: {prompt}");
        let tokens = server.ask("/tokenize", &body)["tokens"].clone();
        assert_eq!(server.ask("/detokenize", &json!({"tokens": tokens}))["prompt"], prompt, "{more}");
        body["stream"] = json!(false);
        let reply = server.ask("/v1/chat/completions", &body);
        assert_eq!(reply["usage"]["prompt_tokens"].as_u64(), tokens.as_array().map(|ids| ids.len() as u64), "{more}");
    }
    for path in ["/apply-template", "/tokenize"] {
        for (field, body) in [
            ("best_of", json!({"messages": [user], "best_of": 3})),
            ("add_special_tokens", json!({"messages": [user], "add_special_tokens": true})),
            ("parse_special", json!({"messages": [user], "parse_special": true})),
        ] {
            let reply = server.post(path, &body);
            assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(field)), "{path}");
        }
    }
}

#[test]
fn the_model_has_names() {
    let aliases = ["gpt-4o", "meta/llama", "claude-*", "tiny"].map(str::to_owned).to_vec();
    let server = Running::of(vec![offered(engine(&model(), 1)).with_aliases(aliases)], options());
    let found =
        [("tiny", 200), ("gpt-4o", 200), ("meta/llama", 200), ("claude-fable-5", 200), ("claude", 404), ("x", 404)];
    for (name, status) in found {
        let entry = server.get(&format!("/v1/models/{name}"));
        assert_eq!(entry.status, status, "{name}");
        let body = json!({"model": name, "prompt": "a", "max_tokens": 1});
        let reply = server.post("/v1/completions", &body);
        assert_eq!(reply.status, status);
        match status {
            200 => assert_eq!((&reply.json()["model"], &entry.json()["id"]), (&json!("tiny"), &json!(name))),
            _ => assert_eq!(reply.json()["error"]["code"], "model_not_found"),
        }
    }
    let every = Running::of(vec![offered(engine(&model(), 1)).with_aliases(vec!["*".to_owned()])], options());
    assert_eq!(every.get("/v1/models/whatever").status, 200);
}

/// The fields of OpenAI's list and of Anthropic's.
#[test]
fn models_are_listed_for_both_interfaces() {
    let aliases = ["gpt-4o", "claude-*", "tiny"].map(str::to_owned).to_vec();
    let server = Running::of(vec![offered(engine(&model(), 1)).with_aliases(aliases)], options());
    let list = server.get("/v1/models").json();
    assert_eq!((&list["object"], &list["has_more"]), (&json!("list"), &json!(false)));
    assert_eq!((&list["first_id"], &list["last_id"]), (&json!("tiny"), &json!("gpt-4o")));
    let data = list["data"].as_array().expect("a list");
    let ids: Vec<&Value> = data.iter().map(|entry| &entry["id"]).collect();
    assert_eq!(ids, ["tiny", "gpt-4o"]);
    for entry in data {
        assert_eq!((&entry["object"], &entry["type"]), (&json!("model"), &json!("model")));
        assert_eq!((&entry["display_name"], &entry["max_model_len"]), (&json!("tiny"), &json!(CONTEXT)));
        assert_eq!(server.get(&format!("/v1/models/{}", entry["id"].as_str().expect("a name"))).json(), *entry);
        let created = UNIX_EPOCH + Duration::from_secs(entry["created"].as_u64().expect("seconds"));
        let written = clock::format(created, "%Y-%m-%dT%H:%M:%SZ");
        assert_eq!(entry["created_at"], written);
    }
}

/// Paths that are not there, and names of other models.
#[test]
fn a_refusal_has_the_form_of_its_interface() {
    let server = Running::usual();
    let kind = |reply: &Reply| (reply.status, reply.json()["type"] == "error", reply.json()["error"]["type"].clone());
    let anthropic = [("anthropic-version", "2023-06-01")];
    let batches = server.post_text("/v1/messages/batches", "{}", &[]);
    assert_eq!(kind(&batches), (404, true, json!("not_found_error")), "{}", batches.text);
    assert_eq!(kind(&server.get("/v1/messages")), (405, true, json!("invalid_request_error")));
    assert_eq!(kind(&server.post_text("/v1/files", "{}", &anthropic)), (404, true, json!("not_found_error")));
    assert_eq!(kind(&server.get_with("/v1/models/other", &anthropic)), (404, true, json!("not_found_error")));
    assert_eq!(kind(&server.get("/v1/models/other")), (404, false, json!("not_found_error")));
    assert_eq!(kind(&server.post_text("/v1/files", "{}", &[])), (404, false, json!("not_found_error")));
}

#[test]
fn every_route_is_described() {
    let server = Running::usual();
    let document = server.get("/openapi.json").json();
    let paths: Vec<&String> = document["paths"].as_object().expect("an object").keys().collect();
    let source = include_str!("../../src/routes.rs");
    let path = |line: &'static str| [".route(\"", "(\""].iter().find_map(|start| line.trim().strip_prefix(start));
    let routes = source.lines().filter_map(|line| path(line)?.split('"').next());
    for route in routes.filter(|&route| route != "/openapi.json") {
        let route = route.replace("{*id}", "{id}");
        // The interfaces are described with their prefix.
        let is_described = |path: &&String| **path == route || path.strip_prefix("/v1") == Some(&*route);
        assert!(paths.iter().any(is_described), "{route} is not described");
    }
    // Rules of OpenAPI; `cargo xtask prove clients` runs a validator.
    let mut ids = BTreeSet::new();
    for path in document["paths"].as_object().expect("an object").values() {
        for operation in path.as_object().expect("an object").values() {
            assert!(ids.insert(operation["operationId"].to_string()), "{} is not unique", operation["operationId"]);
            for (status, response) in operation["responses"].as_object().expect("an object") {
                let described = response["description"].as_str().is_some_and(|text| !text.is_empty());
                assert!(described, "{status} of {}", operation["operationId"]);
            }
        }
    }
    // Each reference leads somewhere.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value.as_str() {
                Some(target) if name == "$ref" => found.push(target),
                _ => references(value, found),
            }),
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for target in found {
        assert!(document.pointer(&target[1..]).is_some(), "{target} is missing");
    }
}

#[test]
fn counters_are_true() {
    // Four sequences with 94 blocks of 16 tokens.
    const CAPACITY: f64 = 4.0 * 94.0 * 16.0;
    let server = Running::usual();
    let body = json!({"prompt": "a prompt of more than one block", "max_tokens": 7, "ignore_eos": true});
    let first = server.ask("/v1/completions", &body);
    let second = server.ask("/v1/completions", &body);
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_f64().expect("a number");
    assert!(cached >= 16.0);
    let prompt = first["usage"]["prompt_tokens"].as_f64().expect("a number");
    for (name, value) in [
        ("gristmill_ended_requests_total{outcome=\"length\"}", 2.0),
        ("gristmill_ended_requests_total{outcome=\"stop\"}", 0.0),
        ("gristmill_ended_requests_total{outcome=\"cancelled\"}", 0.0),
        ("gristmill_ended_requests_total{outcome=\"error\"}", 0.0),
        ("gristmill_prompt_tokens_total", 2.0 * prompt),
        ("gristmill_prompt_tokens_reused_total", cached),
        ("gristmill_generated_tokens_total", 14.0),
        ("gristmill_time_to_first_token_seconds_count", 2.0),
        ("gristmill_time_between_tokens_seconds_count", 12.0),
        ("gristmill_requests", 0.0),
        ("gristmill_requests_waiting", 0.0),
        ("gristmill_kv_cache_capacity_tokens", CAPACITY),
        ("gristmill_step_requests_count", 14.0),
        ("gristmill_step_requests_sum", 14.0),
        ("gristmill_step_requests_bucket{le=\"1.0\"}", 14.0),
        ("gristmill_step_requests_bucket{le=\"+Inf\"}", 14.0),
        // The last token of a text is not computed.
        ("gristmill_step_tokens_sum", 2.0 * (prompt + 6.0) - cached),
    ] {
        assert_eq!(server.metric(name), value, "{name}");
    }
    let kv = ["used", "prefix", "free"].map(|name| server.metric(&format!("gristmill_kv_cache_{name}_tokens")));
    assert!(kv[2] < CAPACITY && kv[2] % 16.0 == 0.0 && kv.iter().sum::<f64>() == CAPACITY, "{kv:?}");
    let seconds = |name: &str| server.metric(&format!("gristmill_{name}_seconds_total"));
    assert!(seconds("forward") > 0.0 && seconds("draw") > 0.0);
    // The last step may not have ended yet.
    assert!(seconds("step") > 0.0);
}

/// One figure for each layer with experts: the busiest one's tokens over the mean.
#[test]
fn the_balance_of_experts_is_told() {
    let mut tiny = Tiny::qwen3moe();
    speech::teach(&mut tiny);
    let options_of_model = LoadOptions { device: "cpu".to_owned(), threads: Some(2), ..LoadOptions::default() };
    let model = Model::from_file(tiny.file(&mut Random::fresh()), options_of_model).expect("a good model");
    let server = Running::new(engine(&Arc::new(model), 2), options());
    assert!(!server.get("/metrics").text.contains("expert_imbalance{"));
    server.ask("/v1/completions", &json!({"prompt": "wheat and rye", "max_tokens": 9}));
    let text = server.get("/metrics").text;
    for layer in 0..2 {
        let imbalance = server.metric(&format!("gristmill_expert_imbalance{{layer=\"{layer}\"}}"));
        assert!((1.0..=5.0).contains(&imbalance), "{text}");
    }
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len(), "{names:?}");
}

#[test]
fn keys_hosts_and_origins() {
    let keys = vec!["secret".into(), "other".into()];
    let access = Access { keys, hosts: vec!["box.lan".parse().expect("a name")], ..Access::default() };
    let server = Running::new(engine(&model(), 1), Options { access, ..options() });
    let body = json!({"prompt": "a", "max_tokens": 1}).to_string();
    let status = |headers: &[(&str, &str)]| server.post_text("/v1/completions", &body, headers).status;
    assert_eq!(status(&[]), 401);
    assert_eq!(status(&[("authorization", "Bearer wrong")]), 401);
    assert_eq!(status(&[("authorization", "Bearer secret")]), 200);
    assert_eq!(status(&[("x-api-key", "other")]), 200);
    let key = ("x-api-key", "secret");
    assert_eq!(status(&[key, ("host", "box.lan:8080")]), 200);
    assert_eq!(status(&[key, ("host", "evil.example")]), 403);
    assert_eq!(status(&[key, ("origin", "http://evil.example")]), 403);
    let own = format!("http://{}", server.address);
    assert_eq!(status(&[key, ("origin", &own)]), 200);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/metrics").status, 401);
    let refused = server.post_text("/v1/messages", "{}", &[]);
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (401, &json!("authentication_error")));
    let refused = server.post_text("/v1/completions", &body, &[]);
    assert!(refused.header("access-control-allow-origin").is_none() && !refused.text.contains("secret"));
}

/// A page of an allowed origin may ask and read, replies and refusals; others may not.
#[test]
fn pages_of_allowed_origins() {
    let origins = vec!["http://localhost:3000".parse().expect("an origin")];
    let access = Access { keys: vec!["secret".into()], origins, ..Access::default() };
    let server = Running::new(engine(&model(), 1), Options { access, ..options() });
    let body = json!({"prompt": "a", "max_tokens": 1}).to_string();
    let ask = |origin, key| server.post_text("/v1/completions", &body, &[("origin", origin), ("x-api-key", key)]);
    for (key, status) in [("secret", 200), ("wrong", 401)] {
        let reply = ask("http://localhost:3000", key);
        let allowed = reply.header("access-control-allow-origin");
        assert_eq!((reply.status, allowed), (status, Some("http://localhost:3000")), "{}", reply.text);
        assert!(
            reply.header("access-control-expose-headers").is_some_and(|names| names.contains("x-gristmill-ignored"))
        );
        assert!(reply.header("access-control-allow-credentials").is_none());
    }
    let refused = ask("http://evil.example", "secret");
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (403, None));
    let preflight = |origin: &str| {
        let asked = "access-control-request-method: POST\r\naccess-control-request-private-network: true\r\n\
             access-control-request-headers: authorization, x-stainless-os";
        let head =
            format!("OPTIONS /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\norigin: {origin}");
        server.raw(format!("{head}\r\n{asked}\r\n\r\n").as_bytes()).to_lowercase()
    };
    let reply = preflight("http://localhost:3000");
    assert!(reply.starts_with("http/1.1 200"), "{reply}");
    for header in [
        "access-control-allow-origin: http://localhost:3000",
        "access-control-allow-headers: authorization, x-stainless-os",
        "access-control-allow-methods: get,post",
        "access-control-max-age: 600",
        "access-control-allow-private-network: true",
    ] {
        assert!(reply.contains(header), "{header} in {reply}");
    }
    let refused = preflight("http://evil.example");
    assert!(!refused.contains("access-control-allow-origin") && !refused.contains("allow-private-network"));
    assert!(!server.get("/health").headers.contains_key("access-control-allow-origin"));
}

/// A key's requests reuse no state that another key's have computed.
#[test]
fn keys_share_no_cache() {
    let access = Access { keys: vec!["one".into(), "two".into()], ..Access::default() };
    let server = Running::new(engine(&model(), 2), Options { access, ..options() });
    let body = json!({"prompt": "a prompt of more than one block", "max_tokens": 1}).to_string();
    let cached = |key: &str| {
        let reply = server.post_text("/v1/completions", &body, &[("x-api-key", key)]).json();
        reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
    };
    assert_eq!(cached("one"), 0);
    assert!(cached("one") > 0);
    assert_eq!(cached("two"), 0);
    assert!(cached("two") > 0);
}

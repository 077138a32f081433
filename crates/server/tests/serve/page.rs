//! The page at `/`, and what it asks for: facts of the model, and the experts of tokens.

use std::sync::Arc;

use gristmill_engine::{LoadOptions, Model};
use gristmill_server::{Access, OfferedModel, Options};
use serde_json::{Value, json};

use crate::server::{Reply, Running, changed_model, engine, model, options};
use crate::speech;
use crate::tiny::{Random, Tiny};

fn with_page(access: Access) -> Running {
    Running::new(engine(&model(), 2), Options { page: true, access, ..options() })
}

/// A model whose 2 layers have 5 experts, 3 for each token.
fn with_experts() -> Arc<Model> {
    let mut tiny = Tiny::qwen3moe();
    speech::teach(&mut tiny);
    let options = LoadOptions { device: "cpu".to_owned(), threads: Some(2), ..LoadOptions::default() };
    Arc::new(Model::from_file(tiny.file(&mut Random::fresh()), options).expect("a good model"))
}

/// The paths that a file of the page names.
fn names(text: &str) -> Vec<String> {
    let quoted = text.split(['"', '\'']).filter(|part| part.starts_with("page/") || part.starts_with("./"));
    quoted.map(|part| part.trim_start_matches("./").trim_start_matches("page/").to_owned()).collect()
}

#[test]
fn every_file_that_the_page_names_is_served() {
    let server = with_page(Access::default());
    let page = server.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let mut left = names(&page.text);
    let mut seen = Vec::new();
    while let Some(name) = left.pop() {
        if seen.contains(&name) {
            continue;
        }
        let file = server.get(&format!("/page/{name}"));
        assert_eq!(file.status, 200, "{name}");
        let expected = match name.rsplit_once('.').expect("an ending").1 {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            other => panic!("{other}"),
        };
        assert_eq!(file.header("content-type"), Some(expected), "{name}");
        if name.ends_with(".js") && !name.starts_with("vendor/") {
            left.extend(names(&file.text));
        }
        seen.push(name);
    }
    assert!(seen.len() > 25, "{seen:?}");
    for path in ["/page/none.js", "/page/", "/page/../Cargo.toml", "/page/README.md"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

#[test]
fn headers_forbid_what_the_page_does_not_need() {
    let server = with_page(Access::default());
    for path in ["/", "/page/main.js", "/page/style/base.css"] {
        let reply = server.get(path);
        let policy = reply.header("content-security-policy").expect("a policy");
        for part in ["default-src 'none'", "script-src 'self'", "img-src 'self' data:", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        for inline in ["<script>", "style=", "onclick=", "javascript:"] {
            assert!(path != "/" || !reply.text.contains(inline), "{inline}");
        }
    }
}

#[test]
fn the_page_connects_to_the_named_mcp_servers_only() {
    let mcp_origins = vec!["http://localhost:3000".parse().expect("an origin")];
    let server = Running::new(engine(&model(), 2), Options { page: true, mcp_origins, ..options() });
    for path in ["/", "/page/mcp.js"] {
        let policy = server.get(path).header("content-security-policy").expect("a policy").to_owned();
        assert!(policy.contains("connect-src 'self' http://localhost:3000"), "{path}: {policy}");
    }
    let policy = with_page(Access::default()).get("/").header("content-security-policy").expect("a policy").to_owned();
    assert!(policy.ends_with("connect-src 'self'"), "{policy}");
}

#[test]
fn a_known_file_is_not_sent_again() {
    let server = with_page(Access::default());
    let ask = |tag: &str| server.get_with("/page/main.js", &[("if-none-match", tag)]);
    let first = server.get("/page/main.js");
    let tag = first.header("etag").expect("a tag").to_owned();
    assert!(tag.len() == 34 && tag.starts_with('"') && server.get("/").header("etag") != Some(&tag), "{tag}");
    for known in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}"), "*".to_owned()] {
        let again = ask(&known);
        assert_eq!((again.status, again.text.as_str(), again.header("etag")), (304, "", Some(tag.as_str())), "{known}");
        assert!(again.header("content-security-policy").is_some());
    }
    let other = ask("\"other\"");
    assert_eq!((other.status, &other.text), (200, &first.text));
}

/// The bytes of both clients differ, so their tags do.
#[test]
fn a_client_that_decompresses_receives_less() {
    let server = with_page(Access::default());
    let path = "/page/vendor/katex.min.js";
    let zipped = server.get_with(path, &[("accept-encoding", "gzip, br")]);
    let plain = server.get(path);
    assert_eq!((zipped.header("content-encoding"), plain.header("content-encoding")), (Some("gzip"), None));
    let length =
        |reply: &Reply| reply.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0_usize);
    assert!(length(&zipped) > 0 && 2 * length(&zipped) < length(&plain), "{} {}", length(&zipped), length(&plain));
    assert_eq!(plain.text.len(), length(&plain));
    for reply in [&zipped, &plain] {
        assert_eq!(reply.header("vary"), Some("accept-encoding"));
    }
    let tag = zipped.header("etag").expect("a tag");
    assert_ne!(Some(tag), plain.header("etag"));
    let known = server.get_with(path, &[("accept-encoding", "gzip"), ("if-none-match", tag)]);
    assert_eq!((known.status, known.header("etag")), (304, Some(tag)));
    assert_eq!(server.get_with(path, &[("if-none-match", tag)]).status, 200);
}

#[test]
fn the_page_needs_no_key_and_what_it_asks_for_does() {
    let server = with_page(Access { keys: vec!["secret".into()], ..Access::default() });
    for path in ["/", "/page/main.js", "/page/vendor/marked.LICENSE.txt"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    for path in ["/model", "/v1/models", "/page/none.js"] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
    assert_eq!(server.get_with("/model", &[("authorization", "Bearer secret")]).status, 200);
    let foreign = server.get_with("/", &[("origin", "https://evil.example")]);
    assert_eq!(foreign.status, 403);
}

#[test]
fn a_server_without_a_page_has_none() {
    let server = Running::usual();
    for path in ["/", "/page/main.js"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

#[test]
fn facts_of_the_model() {
    let server = Running::new(engine(&with_experts(), 1), options());
    let facts = server.get("/model").json();
    assert_eq!((&facts["name"], &facts["architecture"]), (&json!("tiny"), &json!("qwen3moe")));
    assert_eq!((&facts["experts"], &facts["experts_per_token"]), (&json!([5, 5]), &json!([3, 3])));
    assert_eq!((&facts["layers"], &facts["chat_template"]), (&json!(2), &json!(true)));
    let size = |name: &str| facts[name].as_u64().expect("a number");
    // At least 4 bytes for each weight: the tiny model is in f32.
    assert!(size("parameters") > 1_000 && size("bytes") >= 4 * size("parameters"), "{facts}");
    assert_eq!(Running::usual().get("/model").json()["experts"], json!([0, 0]));
}

/// An engine without further settings is sampled as its model recommends.
#[test]
fn a_mounted_model_has_its_recommended_sampling() {
    let model = changed_model(|tiny| tiny.set("general.sampling.temp", 0.25_f32));
    let server = Running::of(vec![OfferedModel::loaded("tiny", engine(&model, 1))], options());
    let sampling = &server.get("/model").json()["sampling"];
    assert_eq!((&sampling["temperature"], &sampling["top_k"]), (&json!(0.25), &json!(40)));
}

/// Checks the experts of a list of tokens, and returns their texts.
fn check(tokens: &[Value]) -> String {
    for token in tokens {
        let layers = token["experts"].as_array().expect("layers");
        assert_eq!(layers.len(), 2, "{token}");
        for layer in layers {
            let pairs: Vec<(u64, f64)> = serde_json::from_value(layer.clone()).expect("pairs");
            let sum: f64 = pairs.iter().map(|pair| pair.1).sum();
            assert!(pairs.len() == 3 && pairs.iter().all(|pair| pair.0 < 5) && (sum - 1.0).abs() < 1e-3, "{layer}");
        }
    }
    tokens.iter().filter_map(|token| token["text"].as_str()).collect()
}

fn tokens(events: &[Value]) -> Vec<Value> {
    let lists = events.iter().filter_map(|event| event["choices"][0]["gristmill"]["tokens"].as_array());
    lists.flatten().cloned().collect()
}

#[test]
fn experts_are_those_of_each_token() {
    let server = Running::new(engine(&with_experts(), 2), options());
    let chat = json!({"messages": [{"role": "user", "content": "abc"}], "seed": 1, "max_tokens": 20});
    let text = json!({"prompt": "abc", "seed": 1, "max_tokens": 20});
    for (path, body) in [("/v1/chat/completions", chat), ("/v1/completions", text)] {
        let plain = server.ask(path, &body);
        assert!(plain["choices"][0].get("gristmill").is_none() && tokens(&server.events(path, &body)).is_empty());
        let mut asked = body.clone();
        asked["experts"] = json!(true);
        let whole = server.ask(path, &asked);
        let choice = |reply: &Value| (reply["choices"][0]["message"].clone(), reply["choices"][0]["text"].clone());
        assert_eq!(choice(&whole), choice(&plain), "{path}");
        let of_whole = whole["choices"][0]["gristmill"]["tokens"].as_array().expect("tokens").clone();
        assert_eq!(Some(of_whole.len() as u64), whole["usage"]["completion_tokens"].as_u64(), "{path}");
        check(&of_whole);
        assert_eq!(tokens(&server.events(path, &asked)), of_whole, "{path}");
    }
}

#[test]
fn a_model_without_experts_refuses_to_show_them() {
    let server = Running::usual();
    let ask = |experts: Value| -> Reply {
        let body = json!({"prompt": "abc", "max_tokens": 1, "experts": experts});
        server.post("/v1/completions", &body)
    };
    let refused = ask(json!(true));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("experts")));
    assert_eq!(ask(json!(false)).status, 200);
    assert_eq!(ask(json!("yes")).status, 400);
}

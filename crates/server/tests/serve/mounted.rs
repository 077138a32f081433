//! The server's paths in an application of someone else.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use gristmill_engine::Request;
use gristmill_server::{Access, Options, router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::server::{agent, engine, model, offered, options};

#[test]
fn a_router_is_mounted() {
    let access = Access { keys: vec!["secret".into()], ..Access::default() };
    let options = Options { access, body_bytes: 1_000, ..options() };
    let own = Router::new().route("/", get(|| async { "own" }));
    let app = own.nest("/llm", router(vec![offered(engine(&model(), 1))], options));
    let runtime = Runtime::new().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    runtime.spawn(async move { axum::serve(listener, app).await });

    let mut page = agent().get(&base).call().expect("a reply");
    assert_eq!(page.body_mut().read_to_string().expect("text"), "own");
    let ask = |path: &str, key: &str, body: &str| {
        let request = agent().post(format!("{base}/llm{path}")).header("x-api-key", key);
        let mut response = request.send(body).expect("a reply");
        let text = response.body_mut().read_to_string().expect("text");
        (response.status().as_u16(), text)
    };
    let body = json!({"prompt": "a", "max_tokens": 2}).to_string();
    let (status, text) = ask("/v1/completions", "secret", &body);
    assert!(status == 200 && text.contains(r#""model":"tiny""#), "{status} {text}");
    assert_eq!(ask("/v1/completions", "wrong", &body).0, 401);
    assert_eq!(ask("/v1/completions", "secret", &"x".repeat(1_001)).0, 413);
    let (status, text) = ask("/v1/messages/batches", "secret", &body);
    assert!(status == 404 && text.contains(r#""type":"error""#), "{status} {text}");
    runtime.shutdown_background();
}

/// The application generates with the engine that the router serves: both at once, with one model and one prefix cache.
#[test]
fn an_application_shares_the_engine() {
    let engine = Arc::new(engine(&model(), 2));
    let app = router(vec![offered(engine.clone())], options());
    let runtime = Runtime::new().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    runtime.spawn(async move { axum::serve(listener, app).await });

    let prompt: Vec<u32> = (0..64).map(|i| i % 50).collect();
    let mut own = Request::new(prompt.clone());
    (own.max_tokens, own.ignore_end) = (Some(20), true);
    let mut running = engine.generate(own).expect("a good request");
    let first = running.next().expect("a piece").expect("it runs");
    // The prompt's blocks are in the cache while the application's request runs.
    let body = json!({"prompt": prompt, "max_tokens": 2, "ignore_eos": true}).to_string();
    let mut response = agent().post(format!("{base}/v1/completions")).send(&body).expect("a reply");
    let text = response.body_mut().read_to_string().expect("text");
    let reply: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let reused = &reply["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(reused.as_u64().is_some_and(|tokens| tokens >= 48), "{reply}");
    let rest: Vec<_> = running.map(|piece| piece.expect("it runs").token).collect();
    assert_eq!((first.finish.is_none(), rest.len()), (true, 19));
    runtime.shutdown_background();
}

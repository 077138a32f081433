//! Any bytes as the body of a request to each path: a reply, never a failure of the server, and JSON where it is
//! refused.
#![no_main]

#[path = "../speaking.rs"]
mod speaking;

use std::sync::LazyLock;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use gristmill_server::{OfferedModel, Options, router};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// The first byte of an input names its path: `0` for the first.
const PATHS: [&str; 11] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/v1/rerank",
    "/v1/score",
];

static SERVER: LazyLock<(Runtime, Router)> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    (runtime, router(vec![OfferedModel::loaded("tiny", speaking::start())], Options::default()))
});

fuzz_target!(init: speaking::allow_caught_panics(), |input: &[u8]| {
    let Some((first, body)) = input.split_first() else { return };
    let Some(path) = PATHS.get(usize::from(first.wrapping_sub(b'0'))) else { return };
    let request = Request::post(*path).header("host", "localhost").body(Body::from(body.to_vec()));
    let (runtime, router) = &*SERVER;
    runtime.block_on(async {
        let reply = router.clone().oneshot(request.expect("a request")).await.expect("the router never fails");
        let status = reply.status();
        let text = to_bytes(reply.into_body(), usize::MAX).await.expect("a whole reply");
        assert!(status != StatusCode::INTERNAL_SERVER_ERROR, "{}", String::from_utf8_lossy(&text));
        if !status.is_success() {
            let refusal: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            assert!(refusal["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
        }
    });
});

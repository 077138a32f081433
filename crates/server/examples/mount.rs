//! The server's interfaces in an application of one's own, here under /llm:
//!
//! ```sh
//! cargo run --release -p gristmill-server --example mount -- MODEL.gguf
//! curl http://127.0.0.1:8080/llm/v1/completions -d '{"prompt": "Once", "max_tokens": 20}'
//! ```

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use gristmill_engine::{Engine, Limits, LoadOptions, Model};
use gristmill_server::{OfferedModel, Options, router};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: mount MODEL.gguf")?;
    let model = Arc::new(Model::open(path, LoadOptions::default())?);
    let engine = Engine::start(model, Limits { sequences: 4, ..Limits::default() })?.with_queue(64);
    let own = Router::new().route("/", get(|| async { "a page of one's own" }));
    let app = own.nest("/llm", router(vec![OfferedModel::loaded("model", engine)], Options::default()));
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:8080").await?;
        axum::serve(listener, app).await
    })?;
    Ok(())
}

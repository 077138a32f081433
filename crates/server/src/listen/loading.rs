//! Replies while the model is being loaded, so that probes can tell a server that starts from one that is not there.

use std::time::Duration;

use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use tokio::task::JoinSet;

use super::sockets::Listener;
use super::{http, serve_all};
use crate::error::ApiError;
use crate::health::{self, Health};

/// How long a client may take to send a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers requests as long as it is there.
#[derive(Debug)]
pub struct Loading {
    /// Ends all when it is dropped.
    _tasks: JoinSet<()>,
}

impl Loading {
    pub(super) fn new<'a>(listeners: impl Iterator<Item = &'a Listener>) -> Loading {
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let mut http = http(PATIENCE);
            // The next request is for the server.
            http.keep_alive(false);
            tasks.spawn(serve_all(listener.clone(), http, PATIENCE, Router::new().fallback(refuse)));
        }
        Loading { _tasks: tasks }
    }
}

async fn refuse(uri: Uri) -> Response {
    if health::PATHS.contains(&uri.path()) {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(Health::new("loading"))).into_response();
    }
    let message = "the model is being loaded; try again later";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("loading").retry_after(1).into_response()
}

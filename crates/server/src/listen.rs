//! Connections, routes, and the end of a server.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use gristmill_engine::Engine;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::TcpListener;

use crate::error::ApiError;
use crate::options::Options;
use crate::state::App;
use crate::{access, anthropic, metrics, openai, openapi, tokens};

/// The most bytes of a request's head.
const HEAD_BYTES: usize = 64 << 10;

/// Why a server did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; choose another port or address")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The runtime of the connections did not start.
    #[error("cannot start the threads of the server: {0}")]
    Runtime(#[source] io::Error),
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    app: App,
    patience: Duration,
}

impl Server {
    /// Listens on an address, which may be a name with a port; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub async fn bind(address: &str, engine: Engine, options: Options) -> Result<Server, ServeError> {
        let failed = |error| ServeError::Listen { address: address.to_owned(), error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let patience = options.patience;
        Ok(Server { listener, app: App::new(engine, options), patience })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `end` is ready. Then it accepts no more connections and returns when all replies have ended.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let Server { listener, app, patience } = self;
        let service = router(app);
        let graceful = GracefulShutdown::new();
        let mut end = std::pin::pin!(end);
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // Out of file descriptors, or a connection that is gone: the next one may be accepted.
                        tracing::warn!(%error, "a connection was not accepted");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    }
                },
                () = &mut end => break,
            };
            // Tokens are small and shall not wait for each other.
            let _ = stream.set_nodelay(true);
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(HEAD_BYTES);
            let service = TowerToHyperService::new(service.clone());
            let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "connection ended");
                }
            });
        }
        drop(listener);
        graceful.shutdown().await;
    }
}

fn router(app: App) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(openai::chat::serve))
        .route("/v1/completions", post(openai::completions::serve))
        .route("/v1/responses", post(openai::responses::serve))
        .route("/v1/models", get(openai::models::list))
        .route("/v1/models/{*id}", get(openai::models::one))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/tokenizer_info", get(tokens::info))
        .route("/apply-template", post(tokens::apply_template))
        .route("/health", get(health))
        .route("/metrics", get(metrics::show))
        .route("/openapi.json", get(openapi::show))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(app.clone(), access::check))
        .with_state(app)
}

/// Whether the server can serve.
#[utoipa::path(get, path = "/health", responses((status = 200, body = Health)))]
pub(crate) async fn health() -> axum::Json<Health> {
    axum::Json(Health { status: "ok" })
}

/// The reply of `/health`.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
}

async fn no_route(uri: axum::http::Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is nothing at {}; see /openapi.json", uri.path()))
}

async fn no_method(method: axum::http::Method, uri: axum::http::Uri) -> ApiError {
    let message = format!("{} does not take {method}; see /openapi.json", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

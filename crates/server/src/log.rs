//! What logs have of a request: no text of the request or of its reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use gristmill_engine::{Piece, Usage};

use crate::error;
use crate::logged::{LoggedRequest, Tokens};
use crate::request_id::{self, ANTHROPIC_REQUEST_ID, REQUEST_ID};
use crate::state::App;
use crate::tenant::Tenant;
use crate::watched::watched;

/// Counts the tokens of a request. The handler writes it, the log reads it at the end of the reply.
#[derive(Debug, Clone)]
pub(crate) struct Counts(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    start: Instant,
    prompt: AtomicU64,
    cached: AtomicU64,
    generated: AtomicU64,
    /// Microseconds until the first token, and one more; 0 before it.
    first: AtomicU64,
}

impl Counts {
    pub(crate) fn new() -> Counts {
        let zero = AtomicU64::default;
        Counts(Arc::new(Counted {
            start: Instant::now(),
            prompt: zero(),
            cached: zero(),
            generated: zero(),
            first: zero(),
        }))
    }

    /// Takes a prompt of this number of tokens.
    pub(crate) fn prompt(&self, tokens: usize) {
        self.0.prompt.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// Takes a generated token. Of the choices of one prompt, the `first` counts what was cached.
    pub(crate) fn token(&self, piece: &Piece, first: bool) {
        let elapsed = self.0.start.elapsed().as_micros() as u64;
        let _ = self.0.first.compare_exchange(0, elapsed + 1, Ordering::Relaxed, Ordering::Relaxed);
        self.0.generated.fetch_add(1, Ordering::Relaxed);
        if let Some(finish) = piece.finish.filter(|_| first) {
            self.0.cached.fetch_add(finish.usage.reused_tokens as u64, Ordering::Relaxed);
        }
    }

    /// Takes what a request for vectors used.
    pub(crate) fn usage(&self, usage: &Usage) {
        self.prompt(usage.prompt_tokens);
        self.0.cached.fetch_add(usage.reused_tokens as u64, Ordering::Relaxed);
    }

    fn tokens(&self) -> Tokens {
        let [prompt, cached, generated, first] =
            [&self.0.prompt, &self.0.cached, &self.0.generated, &self.0.first].map(|n| n.load(Ordering::Relaxed));
        Tokens { prompt, cached, generated, first: first.checked_sub(1).map(Duration::from_micros) }
    }
}

/// Gives each reply the id of its request, reports failures of the server, and passes each request to the access log
/// at the end of its reply.
pub(crate) async fn watch(State(app): State<App>, request: Request, next: Next) -> Response {
    let (time, start) = (SystemTime::now(), Instant::now());
    let id = request_id::of(request.headers());
    let is_anthropic = error::is_anthropic(request.uri(), request.headers());
    let method = request.method().to_string();
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id.clone());
    if is_anthropic {
        response.headers_mut().insert(ANTHROPIC_REQUEST_ID, id.clone());
    }
    let status = response.status().as_u16();
    let request_id = id.to_str().unwrap_or_default().to_owned();
    if response.status().is_server_error() {
        // Without the error's message, which may repeat what the request says.
        tracing::error!(method, path, status, request_id, "a request failed");
    }
    let Some(log) = app.options.log.clone() else { return response };
    let counts = response.extensions().get::<Counts>().cloned();
    let key = response.extensions().get().and_then(|Tenant(client)| Some(client.as_ref()?.name.to_string()));
    // The end is also that of a client that goes away.
    let end = move |complete| {
        let tokens = counts.as_ref().map(Counts::tokens);
        let duration = start.elapsed();
        (log.0)(&LoggedRequest { time, method, path, status, request_id, key, tokens, duration, complete });
    };
    response.map(|body| watched(body, end))
}

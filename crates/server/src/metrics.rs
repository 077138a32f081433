//! Counters and times, in the form of Prometheus.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use gristmill_engine::engine::{EngineError, Piece};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::error::ApiError;
use crate::state::App;

/// Everything that `/metrics` tells.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    connections: Gauge,
    requests: Gauge,
    generations: Counter,
    failures: Counter,
    prompt_tokens: Counter,
    reused_tokens: Counter,
    generated_tokens: Counter,
    drafted_tokens: Counter,
    accepted_tokens: Counter,
    preemptions: Counter,
    to_first_token: Histogram,
    between_tokens: Histogram,
    queue_seconds: Counter<f64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("gristmill");
        // From 1 ms to 65 s, and from 0.1 ms to 1.6 s.
        let to_first_token = Histogram::new(exponential_buckets(1e-3, 2.0, 17));
        let between_tokens = Histogram::new(exponential_buckets(1e-4, 2.0, 15));
        let metrics = Metrics {
            connections: Gauge::default(),
            requests: Gauge::default(),
            generations: Counter::default(),
            failures: Counter::default(),
            prompt_tokens: Counter::default(),
            reused_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            drafted_tokens: Counter::default(),
            accepted_tokens: Counter::default(),
            preemptions: Counter::default(),
            to_first_token,
            between_tokens,
            queue_seconds: Counter::default(),
            registry: Mutex::default(),
        };
        registry.register("connections", "Connections that are open", metrics.connections.clone());
        registry.register("requests", "Generations that run or wait", metrics.requests.clone());
        registry.register("generations", "Generations that ended as they should", metrics.generations.clone());
        registry.register("failures", "Generations that ended with an error", metrics.failures.clone());
        registry.register("prompt_tokens", "Tokens of the prompts of ended generations", metrics.prompt_tokens.clone());
        let help = "Prompt tokens whose state was in the prefix cache";
        registry.register("prompt_tokens_reused", help, metrics.reused_tokens.clone());
        registry.register("generated_tokens", "Tokens generated", metrics.generated_tokens.clone());
        registry.register("drafted_tokens", "Tokens guessed for ended generations", metrics.drafted_tokens.clone());
        let help = "Guessed tokens that the model drew";
        registry.register("accepted_tokens", help, metrics.accepted_tokens.clone());
        let help = "Times that ended generations were interrupted because the KV cache was full";
        registry.register("preemptions", help, metrics.preemptions.clone());
        let help = "Seconds from a request to its first token";
        registry.register("time_to_first_token_seconds", help, metrics.to_first_token.clone());
        let help = "Seconds from one token of a generation to the next";
        registry.register("time_between_tokens_seconds", help, metrics.between_tokens.clone());
        let help = "Seconds that ended generations waited for a sequence";
        registry.register("queue_seconds", help, metrics.queue_seconds.clone());
        Metrics { registry: Mutex::new(registry), ..metrics }
    }

    /// Counts a connection until what is returned is dropped.
    pub(crate) fn connection(&self) -> Open {
        self.connections.inc();
        Open(self.connections.clone())
    }

    /// Follows a generation that was asked for at this time.
    pub(crate) fn watch(self: &std::sync::Arc<Self>, since: Instant) -> Watch {
        self.requests.inc();
        Watch { metrics: self.clone(), since, tokens: 0 }
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Follows one generation.
#[derive(Debug)]
pub(crate) struct Watch {
    metrics: std::sync::Arc<Metrics>,
    /// The request, then the last token.
    since: Instant,
    tokens: u64,
}

impl Watch {
    /// Takes what happens to the generation.
    pub(crate) fn see(&mut self, event: &Result<Piece, EngineError>) {
        let metrics = &self.metrics;
        let Ok(piece) = event else {
            metrics.failures.inc();
            return;
        };
        let now = Instant::now();
        let seconds = (now - self.since).as_secs_f64();
        let histogram = if self.tokens == 0 { &metrics.to_first_token } else { &metrics.between_tokens };
        histogram.observe(seconds);
        (self.since, self.tokens) = (now, self.tokens + 1);
        metrics.generated_tokens.inc();
        if let Some(finish) = &piece.finish {
            metrics.generations.inc();
            metrics.prompt_tokens.inc_by(finish.usage.prompt_tokens as u64);
            metrics.reused_tokens.inc_by(finish.usage.reused_tokens as u64);
            metrics.drafted_tokens.inc_by(finish.usage.drafted_tokens as u64);
            metrics.accepted_tokens.inc_by(finish.usage.accepted_tokens as u64);
            metrics.preemptions.inc_by(finish.usage.preemptions as u64);
            metrics.queue_seconds.inc_by(finish.usage.queue.as_secs_f64());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.metrics.requests.dec();
    }
}

/// Counters and histograms of this server, for Prometheus.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn show(State(app): State<App>) -> Result<Response, ApiError> {
    let mut text = String::new();
    let registry = app.metrics.registry.lock().unwrap_or_else(PoisonError::into_inner);
    // Writing into a string does not fail.
    let _ = encode(&mut text, &registry);
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}

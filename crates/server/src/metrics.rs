//! Counters and times, in the form of Prometheus. `figures` has what the engine counts, `of_key` what each key uses,
//! `vllm` the names of another server.

mod figures;
mod of_key;
mod vllm;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use gristmill_engine::Embeddings;
use gristmill_engine::engine::FinishReason;
use gristmill_engine::{EngineError, Piece, Usage};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::access::Tenant;
use crate::error::ApiError;
use crate::state::App;
use of_key::{OfKey, OfKeys};

/// The prefix of the names of all metrics.
const PREFIX: &str = "gristmill";

/// How requests end: texts as OpenAI names it, the other ways as they are.
const OUTCOMES: [&str; 5] = ["stop", "length", "embedded", "cancelled", "error"];

/// The outcome of a text that ended.
fn outcome(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        _ => "stop",
    }
}

/// The label of a place in a draft.
type Place = [(&'static str, u64); 1];

/// The label of an outcome.
type Outcome = [(&'static str, &'static str); 1];

/// Everything that `/metrics` reports.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    connections: Gauge,
    requests: Gauge,
    ended: Family<Outcome, Counter>,
    prompt_tokens: Counter,
    reused_tokens: Counter,
    generated_tokens: Counter,
    drafts: Counter,
    drafted_tokens: Counter,
    accepted_tokens: Counter,
    accepted_by_place: Family<Place, Counter>,
    preemptions: Counter,
    to_first_token: Histogram,
    between_tokens: Histogram,
    queue_seconds: Counter<f64, AtomicU64>,
    whole: Histogram,
    queued: Histogram,
    keys: OfKeys,
    /// The same by the names of vLLM, if they are requested, with the ends of requests as vLLM names them.
    vllm: Option<(Registry, Family<Outcome, Counter>)>,
}

impl Metrics {
    /// Of a model of this name; `is_vllm`: also by the names of vLLM.
    pub(crate) fn new(model: &str, is_vllm: bool) -> Metrics {
        let mut registry = Registry::with_prefix(PREFIX);
        // From 1 ms to 65 s, and from 0.1 ms to 1.6 s.
        let to_first_token = Histogram::new(exponential_buckets(1e-3, 2.0, 17));
        let between_tokens = Histogram::new(exponential_buckets(1e-4, 2.0, 15));
        // From 1 ms to 9 minutes, and from 1 ms to 65 s.
        let (whole, queued) =
            (Histogram::new(exponential_buckets(1e-3, 2.0, 20)), Histogram::new(exponential_buckets(1e-3, 2.0, 17)));
        let metrics = Metrics {
            connections: Gauge::default(),
            requests: Gauge::default(),
            ended: Family::default(),
            prompt_tokens: Counter::default(),
            reused_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            drafts: Counter::default(),
            drafted_tokens: Counter::default(),
            accepted_tokens: Counter::default(),
            accepted_by_place: Family::default(),
            preemptions: Counter::default(),
            to_first_token,
            between_tokens,
            queue_seconds: Counter::default(),
            whole,
            queued,
            vllm: None,
            keys: OfKeys::default(),
            registry: Mutex::default(),
        };
        registry.register("connections", "Connections that are open", metrics.connections.clone());
        registry.register("requests", "Requests that run or wait", metrics.requests.clone());
        for outcome in OUTCOMES {
            drop(metrics.ended.get_or_create(&[("outcome", outcome)]));
        }
        registry.register("ended_requests", "Requests that have ended, by how", metrics.ended.clone());
        registry.register("prompt_tokens", "Tokens of the prompts of ended requests", metrics.prompt_tokens.clone());
        let help = "Prompt tokens from the prefix cache";
        registry.register("prompt_tokens_reused", help, metrics.reused_tokens.clone());
        registry.register("generated_tokens", "Tokens generated", metrics.generated_tokens.clone());
        registry.register("drafts", "Drafts of ended requests: steps with draft tokens", metrics.drafts.clone());
        registry.register("drafted_tokens", "Draft tokens of ended requests", metrics.drafted_tokens.clone());
        let help = "Draft tokens that the model accepted";
        registry.register("accepted_tokens", help, metrics.accepted_tokens.clone());
        let help = "Draft tokens that the model accepted, by their place in the draft, the first at 0";
        registry.register("accepted_tokens_by_place", help, metrics.accepted_by_place.clone());
        let help = "Times that ended requests were interrupted because the KV cache was full";
        registry.register("preemptions", help, metrics.preemptions.clone());
        let help = "Seconds from a request to its first token";
        registry.register("time_to_first_token_seconds", help, metrics.to_first_token.clone());
        let help = "Seconds from one token of a generation to the next";
        registry.register("time_between_tokens_seconds", help, metrics.between_tokens.clone());
        let help = "Seconds that ended requests waited for a sequence";
        registry.register("queue_seconds", help, metrics.queue_seconds.clone());
        let help = "Seconds from a request to the end of its reply";
        registry.register("request_seconds", help, metrics.whole.clone());
        let help = "Seconds that an ended request waited for a sequence";
        registry.register("request_queue_seconds", help, metrics.queued.clone());
        metrics.keys.register(&mut registry);
        let build = Info::new([("version", env!("CARGO_PKG_VERSION").to_owned()), ("model", model.to_owned())]);
        registry.register("build", "The version of the server, and its model", build);
        let vllm = is_vllm.then(|| {
            let ended = Family::default();
            (vllm::registry(&metrics, model, &ended), ended)
        });
        Metrics { registry: Mutex::new(registry), vllm, ..metrics }
    }

    /// Counts a connection until what is returned is dropped.
    pub(crate) fn connection(&self) -> Open {
        self.connections.inc();
        Open(self.connections.clone())
    }

    /// Follows a tenant's request that was made at this time. The second value is set when the engine has accepted the
    /// request.
    pub(crate) fn watch(self: &Arc<Self>, since: Instant, tenant: &Tenant) -> (Watch, Accepted) {
        self.requests.inc();
        let accepted = Accepted::default();
        let key = tenant.0.as_ref().map(|client| self.keys.of(&client.name));
        (
            Watch {
                metrics: self.clone(),
                key,
                start: since,
                since,
                tokens: 0,
                accepted: accepted.clone(),
                ended: false,
            },
            accepted,
        )
    }

    fn count(&self, usage: &Usage) {
        self.prompt_tokens.inc_by(usage.prompt_tokens as u64);
        self.reused_tokens.inc_by(usage.reused_tokens as u64);
        self.drafts.inc_by(usage.drafts as u64);
        self.drafted_tokens.inc_by(usage.drafted_tokens as u64);
        for (place, counts) in usage.draft_places.iter().enumerate().filter(|(_, counts)| counts.drafted > 0) {
            let counter = self.accepted_by_place.get_or_create(&[("position", place as u64)]);
            counter.inc_by(counts.accepted as u64);
        }
        self.accepted_tokens.inc_by(usage.accepted_tokens as u64);
        self.preemptions.inc_by(usage.preemptions as u64);
        self.queue_seconds.inc_by(usage.queue.as_secs_f64());
        self.queued.observe(usage.queue.as_secs_f64());
    }
}

/// Whether the engine has accepted a request. One that it refuses does not end, because it has not started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accepted(Arc<AtomicBool>);

impl Accepted {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
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

/// Follows one request.
#[derive(Debug)]
pub(crate) struct Watch {
    metrics: Arc<Metrics>,
    key: Option<OfKey>,
    /// When the request came.
    start: Instant,
    /// The request, then the last token.
    since: Instant,
    tokens: u64,
    accepted: Accepted,
    ended: bool,
}

impl Watch {
    /// Takes what happens to a generation.
    pub(crate) fn see(&mut self, event: &Result<Piece, EngineError>) {
        let Ok(piece) = event else { return self.end("error") };
        let metrics = &self.metrics;
        let now = Instant::now();
        let seconds = (now - self.since).as_secs_f64();
        let histogram = if self.tokens == 0 { &metrics.to_first_token } else { &metrics.between_tokens };
        histogram.observe(seconds);
        metrics.generated_tokens.inc();
        self.key.iter().for_each(OfKey::token);
        (self.since, self.tokens) = (now, self.tokens + 1);
        if let Some(finish) = &piece.finish {
            self.count(&finish.usage);
            self.end(outcome(finish.reason));
        }
    }

    /// Takes the result of a request for embeddings.
    pub(crate) fn see_embeddings(&mut self, result: &Result<Embeddings, EngineError>) {
        match result {
            Ok(embeddings) => {
                self.count(&embeddings.usage);
                self.end("embedded");
            }
            Err(_) => self.end("error"),
        }
    }

    fn count(&self, usage: &Usage) {
        self.metrics.count(usage);
        self.metrics.whole.observe(self.start.elapsed().as_secs_f64());
        self.key.iter().for_each(|key| key.prompt(usage));
    }

    fn end(&mut self, outcome: &'static str) {
        self.ended = true;
        self.key.iter().for_each(OfKey::end);
        self.metrics.ended.get_or_create(&[("outcome", outcome)]).inc();
        if let (Some((_, ended)), Some(reason)) = (&self.metrics.vllm, vllm::finished_reason(outcome)) {
            ended.get_or_create(&[("finished_reason", reason)]).inc();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.ended && self.accepted.0.load(Ordering::Relaxed) {
            self.end("cancelled");
        }
        self.metrics.requests.dec();
    }
}

/// Counters and histograms of this server, for Prometheus.
#[utoipa::path(
    get, path = "/metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"))
)]
pub(crate) async fn show(State(app): State<App>) -> Result<Response, ApiError> {
    let mut text = String::new();
    let registry = app.metrics.registry.lock().unwrap_or_else(PoisonError::into_inner);
    let stats = app.engine.stats();
    let mut moment = Registry::default();
    let vllm = app.metrics.vllm.as_ref().map(|(registry, _)| registry);
    if vllm.is_some() {
        let model = app.options.name.clone();
        moment.register_collector(Box::new(vllm::Moment { stats: stats.clone(), model }));
    }
    let figures = figures::registry(stats);
    let parts = [&*registry, &figures, &moment].into_iter().chain(vllm);
    let written = parts.into_iter().try_for_each(|part| encode_registry(&mut text, part));
    // Writing into a string does not fail.
    let _ = written.and_then(|()| encode_eof(&mut text));
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}

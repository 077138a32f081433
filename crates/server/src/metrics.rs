//! Counters and times, in the form of Prometheus. `of_model` has those of each model, `figures` what its engine counts,
//! `of_key` what each key uses, `vllm` the names of another server.

pub(crate) mod endpoint;
mod figures;
mod of_key;
mod of_model;
mod vllm;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use gristmill_engine::Embeddings;
use gristmill_engine::FinishReason;
use gristmill_engine::{EngineError, Piece, Usage};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::tenant::Tenant;
use figures::PREFIX;
use of_key::{OfKey, OfKeys};
pub(crate) use of_model::OfModel;
use of_model::OfModels;

/// The outcome of a text that ended.
fn outcome(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        _ => "stop",
    }
}

/// Everything that `/metrics` reports.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    connections: Gauge,
    models: OfModels,
    builds: Family<[(&'static str, String); 2], Gauge>,
    keys: OfKeys,
    /// The same by the names of vLLM, if they are requested.
    vllm: Option<Registry>,
}

impl Metrics {
    /// `is_vllm`: also by the names of vLLM.
    pub(crate) fn new(is_vllm: bool) -> Metrics {
        let mut registry = Registry::with_prefix(PREFIX);
        let (connections, models, keys) = (Gauge::default(), OfModels::default(), OfKeys::default());
        let builds = Family::default();
        registry.register("connections", "Connections that are open", connections.clone());
        registry.register_collector(Box::new(models.clone()));
        keys.register(&mut registry);
        registry.register("build_info", "The version of the server, and its models; always 1", builds.clone());
        let vllm = is_vllm.then(|| vllm::registry(&models));
        Metrics { registry, connections, models, builds, keys, vllm }
    }

    /// Counts a connection until what is returned is dropped.
    pub(crate) fn connection(&self) -> Open {
        self.connections.inc();
        Open(self.connections.clone())
    }

    /// The counters of the model with this name.
    pub(crate) fn of_model(&self, name: &str) -> OfModel {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.builds.get_or_create(&[("version", version), ("model", name.to_owned())]).set(1);
        self.models.of(name)
    }

    /// Follows a tenant's request to a model that was made at this time. The second value is set when the engine has
    /// accepted the request.
    pub(crate) fn watch(&self, model: &OfModel, since: Instant, tenant: &Tenant) -> (Watch, Accepted) {
        model.requests.inc();
        let accepted = Accepted::default();
        let key = tenant.0.as_ref().map(|client| self.keys.of(&client.name));
        let (model, accepts) = (model.clone(), accepted.clone());
        (Watch { model, key, start: since, since, tokens: 0, accepted: accepts, ended: false }, accepted)
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
    model: OfModel,
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
        let model = &self.model;
        let now = Instant::now();
        let seconds = (now - self.since).as_secs_f64();
        let histogram = if self.tokens == 0 { &model.to_first_token } else { &model.between_tokens };
        histogram.observe(seconds);
        model.generated_tokens.inc();
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
        self.model.count(usage);
        self.model.whole.observe(self.start.elapsed().as_secs_f64());
        self.key.iter().for_each(|key| key.prompt(usage));
    }

    fn end(&mut self, outcome: &'static str) {
        self.ended = true;
        self.key.iter().for_each(OfKey::end);
        self.model.end(outcome);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.ended && self.accepted.0.load(Ordering::Relaxed) {
            self.end("cancelled");
        }
        self.model.requests.dec();
    }
}

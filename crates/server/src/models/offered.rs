//! Models that a server offers, and how they are loaded.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gristmill_engine::{Engine, SamplingOptions};
use serde::Deserialize;
use thiserror::Error;

/// A model that a server offers.
#[derive(Clone)]
pub struct OfferedModel {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) is_pinned: bool,
    pub(super) loader: Option<Loader>,
    pub(super) loaded: Option<LoadedModel>,
}

/// A loaded model: its engine, and the defaults of its requests.
#[derive(Debug, Clone)]
pub struct LoadedModel {
    /// The engine that runs the model.
    pub engine: Arc<Engine>,
    /// Default sampling of requests.
    pub sampling: SamplingOptions,
    /// The most draft tokens in each step of a reply: see [`Request::draft`](gristmill_engine::Request::draft).
    pub draft: usize,
}

/// The model that a request without a body is about.
#[derive(Debug, Deserialize)]
pub(crate) struct ModelQuery {
    model: Option<String>,
}

impl ModelQuery {
    /// The name, if the request has one.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Why a model was not loaded.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The free memory does not suffice. The server unloads an idle model and tries again.
    #[error("{0}")]
    Memory(String),
    /// Another error, such as a damaged file.
    #[error("{0}")]
    Failed(String),
}

/// How much of a model is loaded.
#[derive(Debug, Clone, Default)]
pub struct LoadProgress(Arc<[AtomicU64; 2]>);

/// Loads a model. It runs on a thread that may wait, one load at a time.
pub(super) type Loader = Arc<dyn Fn(&LoadProgress) -> Result<LoadedModel, LoadError> + Send + Sync>;

impl OfferedModel {
    /// A model that is loaded, and stays.
    pub fn loaded(name: impl Into<String>, model: impl Into<LoadedModel>) -> OfferedModel {
        let name = name.into();
        let loaded = Some(model.into());
        OfferedModel { name, aliases: Vec::new(), is_pinned: true, loader: None, loaded }
    }

    /// A model that is loaded when a request needs it. It is unloaded when it has been idle for
    /// [`Options::idle`](crate::Options::idle), or when another model needs its memory.
    pub fn on_demand(
        name: impl Into<String>,
        load: impl Fn(&LoadProgress) -> Result<LoadedModel, LoadError> + Send + Sync + 'static,
    ) -> OfferedModel {
        let (name, loader): (_, Loader) = (name.into(), Arc::new(load));
        OfferedModel { name, aliases: Vec::new(), is_pinned: false, loader: Some(loader), loaded: None }
    }

    /// The same model with other names by which requests can use it. A `*` in a name stands for any characters; names
    /// without one are listed in `/v1/models`.
    pub fn with_aliases(self, aliases: Vec<String>) -> OfferedModel {
        OfferedModel { aliases, ..self }
    }

    /// The same model, which is loaded already.
    pub fn with_loaded(self, model: impl Into<LoadedModel>) -> OfferedModel {
        OfferedModel { loaded: Some(model.into()), ..self }
    }

    /// The same model, which is not unloaded after it was loaded.
    pub fn pinned(self) -> OfferedModel {
        OfferedModel { is_pinned: true, ..self }
    }
}

impl fmt::Debug for OfferedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfferedModel").field(&self.name).finish()
    }
}

impl<E: Into<Arc<Engine>>> From<E> for LoadedModel {
    /// A model whose requests are sampled as it recommends.
    fn from(engine: E) -> LoadedModel {
        let engine = engine.into();
        LoadedModel { sampling: engine.sampling(), engine, draft: 0 }
    }
}

impl LoadProgress {
    /// Sets the bytes that are loaded, and the bytes of all.
    pub fn set(&self, done: u64, total: u64) {
        self.0[0].store(done, Ordering::Relaxed);
        self.0[1].store(total, Ordering::Relaxed);
    }

    /// The loaded part in percent.
    pub(crate) fn percent(&self) -> u64 {
        let [done, total] = [&self.0[0], &self.0[1]].map(|bytes| bytes.load(Ordering::Relaxed));
        done.saturating_mul(100) / total.max(1)
    }
}

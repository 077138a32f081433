//! State that all requests share.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use axum::http::StatusCode;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::models::{OfferedModel, Registry, ServedModel, Slot};
use crate::openai::responses::KeptResponses;
use crate::options::Options;

/// The models, the settings and the counters.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Shared>);

/// See [`App`].
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) models: Arc<Registry>,
    pub(crate) options: Options,
    /// Those that hold now.
    pub(crate) keys: Keys,
    pub(crate) metrics: Arc<Metrics>,
    /// Makes keys of salts, which nobody outside can foresee.
    /// Responses that requests can continue.
    pub(crate) responses: KeptResponses,
    salts: RandomState,
    /// Seconds since 1970 at the start of the server.
    pub(crate) started: u64,
    /// Whether the server is about to end.
    stopping: AtomicBool,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    pub(crate) fn new(models: Vec<OfferedModel>, options: Options) -> App {
        let metrics = Arc::new(Metrics::new(options.vllm_metrics));
        let models = Arc::new(Registry::new(models, &metrics, options.kv_events.clone()));
        let salts = RandomState::new();
        let keys = Keys::new(&options.access.keys);
        let started = seconds();
        let stopping = AtomicBool::new(false);
        let responses = KeptResponses::new(options.response_bytes);
        App(Arc::new(Shared { models, options, keys, metrics, responses, salts, started, stopping }))
    }

    /// The model that a request names, or the first one. It is loaded if it is not.
    pub(crate) async fn model(&self, asked: Option<&str>) -> Result<ServedModel, ApiError> {
        self.load(self.models.find(asked)?).await
    }

    /// The same for the field `model` of a request.
    pub(crate) async fn model_of(&self, fields: &Fields) -> Result<ServedModel, ApiError> {
        self.model(fields.model()?.as_deref()).await
    }

    /// The model, which is loaded if it is not.
    pub(crate) async fn load(&self, slot: &Arc<Slot>) -> Result<ServedModel, ApiError> {
        Ok(ServedModel::new(self.clone(), slot.clone(), self.models.load(slot).await?))
    }

    /// The model of this name if it is loaded, or the first one that is, to be shown.
    ///
    /// # Errors
    /// 404 if there is none of the name, 503 if it is not loaded.
    pub(crate) fn loaded_model(&self, asked: Option<&str>) -> Result<ServedModel, ApiError> {
        let asked = asked.map(|asked| self.models.find(Some(asked))).transpose()?;
        let found = match asked {
            Some(slot) => slot.loaded().map(|model| (slot, model)),
            None => self.models.loaded().next(),
        };
        match found {
            Some((slot, model)) => Ok(ServedModel::shown(self.clone(), slot.clone(), model)),
            None => {
                let which = asked.map_or("no model".to_owned(), |slot| format!("the model {:?}", slot.name));
                let is = if asked.is_some() { "is not" } else { "is" };
                let message =
                    format!("{which} {is} loaded; a request that uses a model loads it, as does POST /models/load");
                Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("model_not_loaded"))
            }
        }
    }
}

/// Seconds since 1970.
pub(crate) fn seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Shared {
    /// The server is about to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the server is about to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// A number that stands for a value as long as the server runs.
    pub(crate) fn hash(&self, value: impl Hash) -> u64 {
        self.salts.hash_one(value)
    }
}

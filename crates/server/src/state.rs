//! State that all requests share.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use gristmill_engine::Engine;

use crate::content::shortened;
use crate::error::ApiError;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::options::Options;
use axum::http::StatusCode;

/// The engine, the settings and the counters.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Shared>);

/// See [`App`].
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) options: Options,
    /// Those that hold now.
    pub(crate) keys: Keys,
    pub(crate) metrics: Arc<Metrics>,
    /// Makes keys of salts, which nobody outside can foresee.
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
    pub(crate) fn new(engine: Arc<Engine>, options: Options) -> App {
        // Replies include it, and none shall wait for it.
        engine.model().fingerprint();
        let metrics = Arc::new(Metrics::new(&options.name, options.vllm_metrics));
        let salts = RandomState::new();
        let keys = Keys::new(&options.access.keys);
        let (started, stopping) = (seconds(), AtomicBool::new(false));
        App(Arc::new(Shared { engine, options, keys, metrics, salts, started, stopping }))
    }

    /// Checks that a request names this model.
    pub(crate) fn check_model(&self, asked: Option<&str>) -> Result<(), ApiError> {
        match asked {
            Some(asked) if !self.options.is_named(asked) => {
                let (name, asked) = (&self.options.name, shortened(asked));
                let message = format!("this server has no model {asked:?}; request {name:?}");
                Err(ApiError::new(StatusCode::NOT_FOUND, message).with_code("model_not_found"))
            }
            _ => Ok(()),
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

    /// The bytes of a token; none of a token that does not exist.
    pub(crate) fn token_bytes(&self, token: u32) -> &[u8] {
        self.engine.model().tokenizer().ok().and_then(|t| t.token_bytes(token).ok()).unwrap_or_default()
    }

    /// The text of one token, in which bytes that are not UTF-8 are U+FFFD.
    pub(crate) fn token_text(&self, token: u32) -> String {
        String::from_utf8_lossy(self.token_bytes(token)).into_owned()
    }

    /// The text of tokens, without control tokens.
    pub(crate) fn text(&self, tokens: &[u32]) -> String {
        self.engine.model().tokenizer().ok().and_then(|t| t.decode(tokens, true).ok()).unwrap_or_default()
    }
}

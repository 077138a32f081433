//! Finds, loads and unloads the models of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use gristmill_engine::EngineError;
use tokio::sync::{Mutex, watch};
use tokio::time::{interval, sleep};

use super::slot::Loaded;
use super::{LoadError, LoadProgress, LoadedModel, OfferedModel, Slot};
use crate::content::shortened;
use crate::error::ApiError;
use crate::kv_events::KvEvents;
use crate::metrics::Metrics;

/// The most names in a refusal.
const NAMES_SHOWN: usize = 20;
/// Seconds after which a client may try again if all other models are in use.
const BUSY_SECONDS: u32 = 10;
/// How often idle models are looked for.
const TICK: Duration = Duration::from_millis(500);
/// How often a load without memory looks for one.
const ROOM_TICKS: usize = 4;

/// The models of a server.
#[derive(Debug)]
pub(crate) struct Registry {
    slots: Vec<Arc<Slot>>,
    /// Held by a load: a load plans with the memory that is free, so two of them would plan with the same memory.
    turn: Mutex<()>,
    /// Whether the server ends.
    is_draining: AtomicBool,
    kv_events: Option<KvEvents>,
}

impl Registry {
    pub(crate) fn new(models: Vec<OfferedModel>, metrics: &Metrics, kv_events: Option<KvEvents>) -> Registry {
        let slot = |offered: OfferedModel| {
            let metrics = metrics.of_model(&offered.name);
            let slot = Slot::new(offered, metrics);
            slot.loaded().iter().for_each(|model| prepare(&slot.name, model, &kv_events));
            Arc::new(slot)
        };
        let slots = models.into_iter().map(slot).collect();
        Registry { slots, turn: Mutex::new(()), is_draining: AtomicBool::new(false), kv_events }
    }

    pub(crate) fn slots(&self) -> &[Arc<Slot>] {
        &self.slots
    }

    /// The model of this name, or the first one for `None`.
    ///
    /// # Errors
    /// 404 with the names of the models.
    pub(crate) fn find(&self, asked: Option<&str>) -> Result<&Arc<Slot>, ApiError> {
        let found = match asked {
            // A name wins over another model's pattern.
            Some(asked) => {
                let named = self.slots.iter().find(|slot| slot.name == asked);
                named.or_else(|| self.slots.iter().find(|slot| slot.is_named(asked)))
            }
            None => self.slots.first(),
        };
        found.ok_or_else(|| {
            let asked = shortened(asked.unwrap_or_default());
            let names = self.slots.iter().take(NAMES_SHOWN).map(|slot| format!("{:?}", slot.name));
            let names = names.collect::<Vec<_>>().join(", ");
            let (one_of, more) = match self.slots.len() {
                1 => ("", ""),
                n if n > NAMES_SHOWN => ("one of ", ", … (GET /v1/models)"),
                _ => ("one of ", ""),
            };
            let message = format!("this server has no model {asked:?}; request {one_of}{names}{more}");
            ApiError::new(StatusCode::NOT_FOUND, message).with_code("model_not_found")
        })
    }

    /// The model, which is loaded if it is not. The load continues if the caller goes away.
    ///
    /// # Errors
    /// 500 if the model cannot be loaded, 503 if the memory does not suffice, or the server ends.
    pub(crate) async fn load(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<Arc<LoadedModel>, ApiError> {
        if let Some(model) = slot.loaded() {
            return Ok(model);
        }
        let mut result = slot.load(|progress, send| {
            tokio::spawn(self.clone().run_load(slot.clone(), progress, send));
        });
        let ended = result.wait_for(Option::is_some).await;
        // The sender sends before it is dropped, unless the runtime ends.
        ended
            .map_or(Err(EngineError::Stopped.into()), |ended| ended.clone().unwrap_or(Err(EngineError::Stopped.into())))
    }

    async fn run_load(self: Arc<Self>, slot: Arc<Slot>, progress: LoadProgress, send: watch::Sender<Loaded>) {
        let _turn = self.turn.lock().await;
        let start = Instant::now();
        let result = self.load_with_room(&slot, &progress).await;
        match &result {
            Ok(_) => {
                slot.metrics.load(start.elapsed().as_secs_f64());
                tracing::info!(model = slot.name, seconds = start.elapsed().as_secs_f64(), "loaded");
            }
            Err(error) => tracing::error!(model = slot.name, error = error.message, "not loaded"),
        }
        // Waiting requests have the model before it counts as idle.
        send.send_replace(Some(result.clone()));
        slot.set_loaded(result.clone().ok());
        // After the model counts as loaded, so that either this or `drain` drains it.
        if let Ok(model) = result
            && self.is_draining.load(Ordering::SeqCst)
        {
            model.engine.drain();
        }
    }

    /// Loads a model. As long as the memory does not suffice, it unloads the model that has been idle for longest.
    async fn load_with_room(&self, slot: &Slot, progress: &LoadProgress) -> Result<Arc<LoadedModel>, ApiError> {
        let Some(loader) = &slot.loader else { return Err(EngineError::Stopped.into()) };
        loop {
            if self.is_draining.load(Ordering::Relaxed) {
                return Err(EngineError::Draining.into());
            }
            let (loader, progress) = (loader.clone(), progress.clone());
            let (name, kv_events) = (slot.name.clone(), self.kv_events.clone());
            let load = move || loader(&progress).map(Arc::new).inspect(|model| prepare(&name, model, &kv_events));
            let loaded = tokio::task::spawn_blocking(load).await;
            match loaded.unwrap_or_else(|error| Err(LoadError::Failed(error.to_string()))) {
                Ok(model) => return Ok(model),
                Err(LoadError::Memory(message)) => match self.idle_for_longest().await {
                    Some(slot) => {
                        unload(slot).await;
                    }
                    None => return Err(self.no_room(slot, &message)),
                },
                Err(LoadError::Failed(message)) => {
                    // The message may name files.
                    tracing::error!(model = slot.name, message, "a model cannot be loaded");
                    let message =
                        format!("the model {:?} cannot be loaded; the server's log has the reason", slot.name);
                    return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).with_code("load_failed"));
                }
            }
        }
    }

    /// The model that has been idle for longest. It waits a moment for one, because a short request may end, or a figure
    /// of a model may be read.
    async fn idle_for_longest(&self) -> Option<&Arc<Slot>> {
        for _ in 0..ROOM_TICKS {
            let idle = self.slots.iter().filter_map(|slot| Some((slot.idle()?, slot)));
            let longest = idle.max_by_key(|(idle, _)| *idle);
            if longest.is_some() || !self.slots.iter().any(|slot| slot.can_unload()) {
                return longest.map(|(_, slot)| slot);
            }
            sleep(TICK).await;
        }
        None
    }

    /// The refusal of a load that does not fit into memory, although nothing is idle.
    fn no_room(&self, slot: &Slot, message: &str) -> ApiError {
        let name = &slot.name;
        let busy: Vec<&str> =
            self.slots.iter().filter(|slot| slot.can_unload()).map(|slot| slot.name.as_str()).collect();
        let error = |message| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("no_memory");
        if busy.is_empty() {
            return error(format!("the model {name:?} does not fit into memory: {message}"));
        }
        let busy = busy.join(", ");
        let message = format!(
            "the model {name:?} does not fit into memory next to {busy}, which requests use: {message}; try again later"
        );
        error(message).retry_after(BUSY_SECONDS)
    }

    /// Unloads a model.
    ///
    /// # Errors
    /// 409 if it is pinned, or a request uses it.
    pub(crate) async fn unload(&self, slot: &Slot) -> Result<(), ApiError> {
        if unload(slot).await || slot.status().value == "unloaded" {
            return Ok(());
        }
        let why = if slot.can_unload() { "requests use it" } else { "it is pinned or being loaded" };
        let message = format!("the model {:?} is not unloaded, because {why}", slot.name);
        Err(ApiError::new(StatusCode::CONFLICT, message).with_code("model_in_use"))
    }

    /// Unloads models that have been idle for this time. Never returns.
    pub(crate) async fn unload_idle(self: Arc<Self>, most: Duration) {
        let mut ticks = interval(TICK);
        loop {
            ticks.tick().await;
            for slot in &self.slots {
                if slot.idle().is_some_and(|idle| idle >= most) {
                    unload(slot).await;
                }
            }
        }
    }

    /// Loads pinned models.
    pub(crate) async fn load_pinned(self: Arc<Self>) {
        for slot in self.slots.iter().filter(|slot| slot.is_pinned) {
            // The log has the error, and requests get it.
            let _ = self.load(slot).await;
        }
    }

    /// The models that are loaded.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = (&Arc<Slot>, Arc<LoadedModel>)> {
        self.slots.iter().filter_map(|slot| Some((slot, slot.loaded()?)))
    }

    /// Refuses loads and waiting requests from now on: see [`gristmill_engine::Engine::drain`].
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
        self.loaded().for_each(|(_, model)| model.engine.drain());
    }
}

/// Unloads a model if no request uses it. Returns whether it did.
async fn unload(slot: &Slot) -> bool {
    let Some(model) = slot.take_idle() else { return false };
    // Dropping an engine waits for its thread.
    let dropped = tokio::task::spawn_blocking(move || drop(model)).await;
    tracing::info!(model = slot.name, "unloaded");
    dropped.is_ok()
}

/// Computes what replies include, so that none waits for it, and publishes the changes of the prefix cache.
fn prepare(name: &str, model: &LoadedModel, kv_events: &Option<KvEvents>) {
    model.engine.model().fingerprint();
    if let Some(Err(error)) = kv_events.as_ref().map(|events| events.listen(name, &model.engine)) {
        tracing::warn!(model = name, %error, "no events of the KV cache are published");
    }
}

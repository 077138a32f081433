//! One model of a server: its names, and whether it is loaded.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::response::sse::Event;
use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

use super::offered::{LoadProgress, LoadedModel, Loader, OfferedModel};
use crate::error::ApiError;
use crate::metrics::OfModel;

/// The result of a load; `None` until it has ended.
pub(super) type Loaded = Option<Result<Arc<LoadedModel>, ApiError>>;

/// A model that the server offers.
pub(crate) struct Slot {
    pub(crate) name: String,
    aliases: Vec<String>,
    pub(super) is_pinned: bool,
    /// `None` for a model that was loaded by the caller and stays.
    pub(super) loader: Option<Loader>,
    pub(crate) metrics: OfModel,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Unloaded {
        /// Whether the last load has failed.
        failed: bool,
    },
    Loading(LoadProgress, watch::Receiver<Loaded>),
    Loaded {
        model: Arc<LoadedModel>,
        /// The end of the last request.
        used: Instant,
    },
}

/// Whether a model is loaded, in the shape of llama-server's router mode.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    /// `unloaded`, `loading` or `loaded`.
    pub(crate) value: &'static str,
    /// `true` if the last load failed. The next request tries again.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<bool>,
    /// The loaded part of a model that is being loaded, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<u64>,
}

impl Slot {
    pub(super) fn new(offered: OfferedModel, metrics: OfModel) -> Slot {
        let OfferedModel { name, aliases, is_pinned, loader, loaded } = offered;
        let state = match loaded {
            Some(model) => State::loaded(Arc::new(model)),
            None => State::Unloaded { failed: false },
        };
        Slot { name, aliases, is_pinned, loader, metrics, state: Mutex::new(state) }
    }

    /// Whether requests can use the model by this name.
    pub(super) fn is_named(&self, asked: &str) -> bool {
        asked == self.name || self.aliases.iter().any(|alias| matches(alias, asked))
    }

    /// The model's name, and its aliases that are names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let aliases = self.aliases.iter().filter(|alias| !alias.contains('*') && **alias != self.name);
        std::iter::once(&self.name).chain(aliases).map(String::as_str)
    }

    pub(crate) fn status(&self) -> Status {
        let none = Status { value: "unloaded", failed: None, progress: None };
        match &*self.state() {
            State::Unloaded { failed } => Status { failed: failed.then_some(true), ..none },
            State::Loading(progress, _) => Status { value: "loading", progress: Some(progress.percent()), ..none },
            State::Loaded { .. } => Status { value: "loaded", ..none },
        }
    }

    /// A comment that says how much of the model is loaded.
    pub(crate) fn progress(&self) -> Event {
        let percent = self.status().progress.map_or(String::new(), |percent| format!(" {percent}%"));
        // A comment is one line.
        Event::default().comment(format!("loading {}{percent}", self.name.escape_debug()))
    }

    /// The model, if it is loaded. While the caller has it, it is not unloaded.
    pub(crate) fn loaded(&self) -> Option<Arc<LoadedModel>> {
        match &*self.state() {
            State::Loaded { model, .. } => Some(model.clone()),
            _ => None,
        }
    }

    /// The result of the load that runs, or else of one that `start` starts with the progress and the sender.
    pub(super) fn load(&self, start: impl FnOnce(LoadProgress, watch::Sender<Loaded>)) -> watch::Receiver<Loaded> {
        let mut state = self.state();
        match &*state {
            State::Loading(_, result) => result.clone(),
            State::Loaded { model, .. } => watch::channel(Some(Ok(model.clone()))).1,
            State::Unloaded { .. } => {
                let (progress, (send, result)) = (LoadProgress::default(), watch::channel(None));
                *state = State::Loading(progress.clone(), result.clone());
                drop(state);
                start(progress, send);
                result
            }
        }
    }

    /// Takes the end of a load.
    pub(super) fn set_loaded(&self, model: Option<Arc<LoadedModel>>) {
        *self.state() = model.map_or(State::Unloaded { failed: true }, State::loaded);
    }

    /// Takes the end of a request.
    pub(super) fn touch(&self) {
        if let State::Loaded { used, .. } = &mut *self.state() {
            *used = Instant::now();
        }
    }

    /// How long a model has been idle that can be unloaded; `None` for another.
    pub(super) fn idle(&self) -> Option<Duration> {
        match &*self.state() {
            State::Loaded { model, used } if self.is_idle(model) => Some(used.elapsed()),
            _ => None,
        }
    }

    /// Takes the model out, if no request uses it.
    pub(super) fn take_idle(&self) -> Option<Arc<LoadedModel>> {
        let mut state = self.state();
        match &*state {
            State::Loaded { model, .. } if self.is_idle(model) => {}
            _ => return None,
        }
        match std::mem::replace(&mut *state, State::Unloaded { failed: false }) {
            State::Loaded { model, .. } => Some(model),
            _ => None,
        }
    }

    /// Whether the model is loaded, and can be unloaded when no request uses it.
    pub(super) fn can_unload(&self) -> bool {
        self.loader.is_some() && !self.is_pinned && matches!(&*self.state(), State::Loaded { .. })
    }

    /// Invariant: only a caller of [`loaded`](Self::loaded), which takes the same lock, can get a further reference.
    fn is_idle(&self, model: &Arc<LoadedModel>) -> bool {
        self.loader.is_some() && !self.is_pinned && Arc::strong_count(model) == 1
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn loaded(model: Arc<LoadedModel>) -> State {
        State::Loaded { model, used: Instant::now() }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("name", &self.name).field("state", &self.state).finish_non_exhaustive()
    }
}

/// Whether a name is one of a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut name) = name.strip_prefix(first) else { return false };
    for part in middle.split('*') {
        let Some((_, behind)) = name.split_once(part) else { return false };
        name = behind;
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_names() {
        for (pattern, name) in [
            ("a", "a"),
            ("*", ""),
            ("*", "any/name"),
            ("claude-*", "claude-"),
            ("claude-*", "claude-sonnet-5"),
            ("*-mini", "gpt-mini"),
            ("a*b*c", "abc"),
            ("a*b*c", "a-b-b-c-c"),
            ("*b*", "abc"),
            ("a**c", "abc"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a", "ab"),
            ("", "a"),
            ("claude-*", "xclaude-1"),
            ("*-mini", "gpt-mini-2"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("a*b*b", "ab"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}

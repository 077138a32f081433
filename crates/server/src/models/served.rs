//! A loaded model that a request uses.

use std::ops::Deref;
use std::sync::Arc;

use super::{LoadedModel, Slot};
use crate::metrics::OfModel;
use crate::state::App;

/// A loaded model, and the server that has it. The model is not unloaded while this exists.
#[derive(Debug, Clone)]
pub(crate) struct ServedModel(Arc<Use>);

/// See [`ServedModel`].
#[derive(Debug)]
pub(crate) struct Use {
    app: App,
    slot: Arc<Slot>,
    loaded: Arc<LoadedModel>,
    /// Whether the model is idle from its end on; monitoring leaves that time as it is.
    is_request: bool,
}

impl ServedModel {
    pub(crate) fn new(app: App, slot: Arc<Slot>, loaded: Arc<LoadedModel>) -> ServedModel {
        ServedModel(Arc::new(Use { app, slot, loaded, is_request: true }))
    }

    /// A model that is only shown.
    pub(crate) fn shown(app: App, slot: Arc<Slot>, loaded: Arc<LoadedModel>) -> ServedModel {
        ServedModel(Arc::new(Use { app, slot, loaded, is_request: false }))
    }

    pub(crate) fn app(&self) -> &App {
        &self.0.app
    }

    /// The name in replies.
    pub(crate) fn name(&self) -> &str {
        &self.0.slot.name
    }

    pub(crate) fn metrics(&self) -> &OfModel {
        &self.0.slot.metrics
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

impl Deref for ServedModel {
    type Target = LoadedModel;

    fn deref(&self) -> &LoadedModel {
        &self.0.loaded
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if self.is_request {
            self.slot.touch();
        }
    }
}

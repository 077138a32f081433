//! Whose request it is.

use std::sync::Arc;

use crate::error::ApiError;
use crate::keys::{Client, Turn};

/// Whose request it is; nobody's without keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tenant(pub(crate) Option<Arc<Client>>);

impl Tenant {
    /// See [`gristmill_engine::Request::tenant`].
    pub(crate) fn id(&self) -> u64 {
        self.0.as_ref().map_or(0, |client| client.tenant)
    }

    /// Counts the sequences of a request that takes time of the engine, if the limits of the key allow it.
    pub(crate) fn turn(&self, sequences: usize) -> Result<Option<Turn>, ApiError> {
        self.0.as_ref().map(|client| client.turn(sequences)).transpose()
    }
}

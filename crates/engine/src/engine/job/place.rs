//! Places among the requests that an engine takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A place among the requests that an engine takes at a time; free again when dropped.
#[derive(Debug)]
pub(in crate::engine) struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes one of `places`, of which `taken` are taken.
    pub(in crate::engine) fn take(taken: &Arc<AtomicUsize>, places: usize) -> Option<Place> {
        let more = |n: usize| (n < places).then_some(n + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place(taken.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

//! Permits to be among the requests that an engine takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A permit to be among the requests that an engine takes at a time; free again when dropped.
#[derive(Debug)]
pub(in crate::engine) struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// Takes `count` of `places`, of which `taken` are taken, or none of them.
    pub(in crate::engine) fn take(taken: &Arc<AtomicUsize>, places: usize, count: usize) -> Option<Vec<Permit>> {
        let more = |n: usize| n.checked_add(count).filter(|&n| n <= places);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some((0..count).map(|_| Permit(taken.clone())).collect())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

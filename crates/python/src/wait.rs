//! Waiting and working without the GIL.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::Raised;

/// How soon a signal ends a wait.
const SOON: Duration = Duration::from_millis(50);

/// What a thread waits for.
#[derive(Debug, Default)]
pub(crate) struct Awaited<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T: Send> Awaited<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those that wait.
    pub(crate) fn changed(&self) {
        self.changed.notify_all();
    }

    /// What `take` returns as soon as it returns something. Without the GIL; a signal whose handler raises ends the wait.
    pub(crate) fn wait<R: Send>(
        &self,
        py: Python<'_>,
        mut take: impl FnMut(&mut T) -> Option<R> + Send,
    ) -> PyResult<R> {
        loop {
            let found = py.detach(|| {
                let mut state = self.lock();
                if let Some(found) = take(&mut state) {
                    return Some(found);
                }
                let waited = self.changed.wait_timeout(state, SOON).unwrap_or_else(PoisonError::into_inner);
                let mut state = waited.0;
                take(&mut state)
            });
            if let Some(found) = found {
                return Ok(found);
            }
            py.check_signals()?;
        }
    }
}

/// Runs what takes a while without the GIL. A panic is an error.
pub(crate) fn sealed<R: Send>(py: Python<'_>, work: impl FnOnce() -> Result<R, Raised> + Send) -> PyResult<R> {
    py.detach(|| unpanicked(work)).map_err(|raised| raised.exception(py))
}

/// Runs work whose panic is an error.
pub(crate) fn unpanicked<R>(work: impl FnOnce() -> Result<R, Raised>) -> Result<R, Raised> {
    // What the work has borrowed is not used after a panic: each method's state is behind a lock or unchanged.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Raised::new("InternalError", "gristmill panicked; report this with the lines on stderr"))
    })
}

//! Calls of code outside of the crate.

use std::panic::{self, AssertUnwindSafe};

/// Calls a caller's callback. A panic in it is logged, and gives `None`: it is the fault of one request, and not of the
/// engine.
pub(super) fn call_back<T>(call: impl FnOnce() -> T) -> Option<T> {
    let called = panic::catch_unwind(AssertUnwindSafe(call));
    called.inspect_err(|_| tracing::error!("the callback of a request panicked; the request is cancelled")).ok()
}

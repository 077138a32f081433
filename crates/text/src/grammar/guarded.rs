//! Runs code of llguidance, whose panics are errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of llguidance, whose panics are errors here.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // Nobody uses the borrowed values again after an error.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(message(&*panic)))
}

pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("llguidance has failed: {}", text.unwrap_or("no reason given"))
}

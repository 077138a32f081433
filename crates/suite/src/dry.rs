//! Cases on backends that compute nothing, of which only the launches matter.

use std::cell::Cell;

thread_local! {
    /// Whether the backend of this thread's cases computes nothing, so that nothing is compared.
    static IS_DRY: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn is_dry() -> bool {
    IS_DRY.get()
}

/// Runs cases of such a backend, which do not panic.
pub(crate) fn run(cases: impl FnOnce()) {
    IS_DRY.set(true);
    cases();
    IS_DRY.set(false);
}

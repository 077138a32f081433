//! A thread that shows the other ranks that this process lives, and counts their silence.

use super::state::State;
use crate::Repeat;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two signs.
const PULSE: Duration = Duration::from_millis(250);

/// Starts the thread, which ends when the group has failed; `None` if the system has no thread.
pub(super) fn start(state: &Arc<Mutex<State>>) -> Option<Repeat> {
    let (state, mut last) = (Arc::clone(state), Instant::now());
    let beat = move || {
        // A process that was stopped does not know what came meanwhile.
        let elapsed = last.elapsed().min(2 * PULSE);
        last = Instant::now();
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        // The next call finds the error too.
        match state.failure.is_some() || state.pulse(elapsed).is_err() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    Repeat::start("sign of life", PULSE, beat).ok()
}

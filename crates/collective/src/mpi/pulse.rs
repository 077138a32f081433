//! A thread that shows the other ranks that this process lives, and counts their silence.

use super::state::State;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two signs.
const PULSE: Duration = Duration::from_millis(250);

/// The thread, which ends when it is dropped or the group has failed.
#[derive(Debug)]
pub(super) struct Pulse {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    pub(super) fn start(state: &Arc<Mutex<State>>) -> Option<Self> {
        let (state, (stop, stopped)) = (Arc::clone(state), channel());
        let beat = move || {
            let mut last = Instant::now();
            while stopped.recv_timeout(PULSE) == Err(RecvTimeoutError::Timeout) {
                // A process that was stopped does not know what came meanwhile.
                let elapsed = last.elapsed().min(2 * PULSE);
                last = Instant::now();
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                // The next call finds the error too.
                if state.failure.is_some() || state.pulse(elapsed).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("sign of life".to_owned()).spawn(beat).ok()?;
        Some(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.stop = None;
        // It has nothing to say.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

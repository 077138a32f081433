//! A thread that repeats a step.

use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A thread that repeats a step, until this is dropped or a step says that it was the last one.
#[derive(Debug)]
pub struct Repeat {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Repeat {
    /// Starts the thread, which has this name. It waits for `pause` before each step.
    ///
    /// # Errors
    /// What the system says if there is no thread.
    pub fn start(
        name: &str,
        pause: Duration,
        mut step: impl FnMut() -> ControlFlow<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let repeat = move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                if step().is_break() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(repeat)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Repeat {
    /// Waits for the step that runs.
    fn drop(&mut self) {
        self.stop = None;
        // It has nothing to say.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

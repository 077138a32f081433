//! A thread that looks after the sums of a device. The device itself would wait for ever for one that is lost.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gristmill_collective::Collective;
use gristmill_kernels::Backend;

use crate::error::{Error, Result};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Looks whether the group of ranks or a sum of this rank's device has failed, and then ends both, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(collective: Arc<dyn Collective>, backend: Arc<Backend>) -> Result<Self> {
        let (stop, stopped) = channel();
        let watch = move || {
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let Some(ranks) = backend.ranks() else { return };
                let failure = collective.look().err().map(|lost| lost.to_string());
                if let Some(reason) = failure.or_else(|| ranks.check().err().map(|error| error.to_string())) {
                    collective.abort(&reason);
                    return ranks.abort(&reason);
                }
            }
        };
        let thread = thread::Builder::new().name("sums of a rank".to_owned()).spawn(watch);
        let thread = thread.map_err(|error| Error::Split { reason: format!("no thread for a rank ({error})") })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        // It has nothing to say.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

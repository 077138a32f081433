//! A generation as an iterator, and what cancels requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::output::Event;
use crate::{EngineError, Piece};

/// The completion of a request, one piece for each token. The last piece says how the generation ended; an error is the
/// last item. Dropping the iterator cancels the request.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub struct Generation {
    pub(super) pieces: Receiver<Event>,
    pub(super) cancel: Canceller,
    pub(super) ended: bool,
    /// The engine's thread, which cannot wait for itself.
    pub(super) engine: Option<ThreadId>,
}

impl Generation {
    /// A handle that ends this generation from another thread, for example from a signal handler's.
    pub fn canceller(&self) -> Canceller {
        self.cancel.clone()
    }
}

impl Iterator for Generation {
    type Item = Result<Piece, EngineError>;

    /// Blocks until the next piece. In a callback of the engine it is [`EngineError::InCallback`].
    fn next(&mut self) -> Option<Self::Item> {
        // Often enough that cancelling feels immediate even if the engine is in a long step.
        const LOOK_UP: Duration = Duration::from_millis(20);
        if !self.ended && self.engine == Some(thread::current().id()) {
            self.ended = true;
            return Some(Err(EngineError::InCallback));
        }
        while !self.ended {
            match self.pieces.recv_timeout(LOOK_UP) {
                Ok(Ok(piece)) => {
                    self.ended = piece.finish.is_some();
                    return Some(Ok(piece));
                }
                Ok(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                Err(_) if self.cancel.is_cancelled() => self.ended = true,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended = true;
                    return Some(Err(EngineError::Stopped));
                }
            }
        }
        None
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// Ends a request. The iterator of a [`Generation`] gives the pieces that have arrived, then ends.
#[derive(Debug, Clone)]
pub struct Canceller(pub(super) Arc<AtomicBool>);

impl Canceller {
    /// Ends the generation.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`Self::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

//! Pinned host memory for weights on their way to the device, filled by several threads: the link then has its full speed.
//! From pageable memory, the driver copies on one thread.

use super::context::Context;
use super::staging::{Event, Pinned};
use cudarc::driver::sys;
use gristmill_gpu::upload::Stage;
use gristmill_kernels::error::Result;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory for a piece. A dropped piece waits for its copy.
pub(super) struct Piece {
    context: Arc<Context>,
    memory: Pinned,
    bytes: usize,
    arrived: Event,
    is_in_flight: bool,
}

/// Free pieces, some of which the device still reads. They are kept for the next load.
#[derive(Default)]
pub(super) struct Pieces(Mutex<Vec<Piece>>);

impl Pieces {
    /// A free piece, for the calling thread, in which the context becomes current.
    pub(super) fn take(&self, context: &Arc<Context>) -> Result<Piece> {
        context.enter()?;
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.map_or_else(|| Piece::new(context), Ok)
    }

    pub(super) fn give_back(&self, piece: Piece) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
    }
}

impl Piece {
    /// The usual size. A longer row gets more memory.
    fn new(context: &Arc<Context>) -> Result<Self> {
        let bytes = gristmill_gpu::layout::PIECE;
        let memory = Pinned::zeroed(context, bytes)?;
        let arrived = Event::new(context)?;
        Ok(Self { context: Arc::clone(context), memory, bytes, arrived, is_in_flight: false })
    }

    fn wait(&mut self) -> Result<()> {
        if self.is_in_flight {
            self.arrived.wait()?;
            self.is_in_flight = false;
        }
        Ok(())
    }
}

impl Stage for Piece {
    fn memory(&mut self, bytes: usize) -> Result<&mut [u8]> {
        self.wait()?;
        if bytes > self.bytes {
            (self.memory, self.bytes) = (Pinned::zeroed(&self.context, bytes)?, bytes);
        }
        // SAFETY: the memory has `bytes` bytes, which were zeroed when it was allocated. `self` owns it, and no copy reads
        // it after the wait.
        Ok(unsafe { slice::from_raw_parts_mut(self.memory.memory, self.bytes) })
    }

    fn submit(&mut self, address: u64, bytes: usize) -> Result<()> {
        self.wait()?;
        // From here on, dropping the piece waits, also if the copy is refused.
        self.is_in_flight = true;
        let from = self.memory.memory.cast_const();
        let bytes = bytes.min(self.bytes);
        // SAFETY: `Region` has checked that all pieces are inside its memory. The source is pinned, and is neither written
        // nor freed before the event.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(address, from.cast(), bytes, self.context.stream) };
        super::context::check(self.context.id, "copying weights to it", code)?;
        self.arrived.set()
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.is_in_flight {
            // The event may be missing, so all work is waited for. On failure the device is lost.
            let _ = self.context.enter().and_then(|()| self.context.wait());
        }
    }
}

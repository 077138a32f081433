//! Copies to the device on streams of their own, while kernels run.

use super::context::{Context, check};
use cudarc::driver::sys;
use gristmill_kernels::error::Result;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// Streams for copies: one for each thread that copies at the same time. The next copy can start while the thread of the last one
/// wakes up, which takes a fifth of the time of 24 MB.
pub(super) struct CopyStreams {
    context: Arc<Context>,
    free: Mutex<Vec<Queue>>,
}

/// A stream, and an event for which a thread sleeps.
struct Queue {
    stream: sys::CUstream,
    arrived: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread once its context is current there, which the callers see to.
unsafe impl Send for Queue {}

impl CopyStreams {
    /// No stream yet.
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), free: Mutex::default() }
    }

    /// Copies pieces to device memory that the caller owns, and waits until they have arrived. The context must be current in this
    /// thread.
    pub(super) fn write(&self, pieces: &[(u64, &[u8])]) -> Result<()> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let queue = match free {
            Some(queue) => queue,
            None => Queue::new(&self.context)?,
        };
        let outcome = queue.write(&self.context, pieces);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(queue);
        outcome
    }
}

impl Queue {
    fn new(context: &Context) -> Result<Self> {
        let (mut stream, mut arrived) = (ptr::null_mut(), ptr::null_mut());
        let of_stream = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        let of_event = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32
            | sys::CUevent_flags_enum::CU_EVENT_BLOCKING_SYNC as u32;
        // SAFETY: the places of the handles live through the calls; `CopyStreams::drop` gives both back.
        unsafe {
            check(context.id, "making a stream for copies", sys::cuStreamCreate(&mut stream, of_stream))?;
            let made = check(context.id, "making an event", sys::cuEventCreate(&mut arrived, of_event));
            if made.is_err() {
                sys::cuStreamDestroy_v2(stream);
                made?;
            }
        }
        Ok(Self { stream, arrived })
    }

    fn write(&self, context: &Context, pieces: &[(u64, &[u8])]) -> Result<()> {
        let id = context.id;
        let &Self { stream, arrived } = self;
        let submit = |&(address, bytes): &(u64, &[u8])| {
            // SAFETY: `Region` has checked that the bytes fit its memory. The source lives until the wait below.
            let code = unsafe { sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), stream) };
            check(id, "copying experts to it", code)
        };
        let submitted = pieces.iter().try_for_each(submit);
        // SAFETY: event and stream live as long as `self`, which one thread has at a time. The wait also ends copies before one
        // that was refused.
        let waited = unsafe {
            check(id, "copying experts to it", sys::cuEventRecord(arrived, stream))
                .and_then(|()| check(id, "copying experts to it", sys::cuEventSynchronize(arrived)))
        };
        submitted.and(waited)
    }
}

impl Drop for CopyStreams {
    fn drop(&mut self) {
        let queues = self.free.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the only owner of the handles; no thread copies any more. A failure here has no caller to report to.
        unsafe {
            if self.context.enter().is_ok() {
                for queue in queues.drain(..) {
                    sys::cuEventDestroy_v2(queue.arrived);
                    sys::cuStreamDestroy_v2(queue.stream);
                }
            }
        }
    }
}

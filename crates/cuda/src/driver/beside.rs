//! Copies to the device on a stream of their own, while kernels run.

use super::context::{Context, check};
use cudarc::driver::sys;
use gristmill_kernels::error::Result;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// The stream, and an event for which a thread sleeps.
pub(super) struct Beside {
    context: Arc<Context>,
    handles: Mutex<Handles>,
}

struct Handles {
    stream: sys::CUstream,
    arrived: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread once its context is current there, which the callers see to.
unsafe impl Send for Handles {}

impl Beside {
    /// A stream. The context must be current in this thread.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let (mut stream, mut arrived) = (ptr::null_mut(), ptr::null_mut());
        let of_stream = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        let of_event = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32
            | sys::CUevent_flags_enum::CU_EVENT_BLOCKING_SYNC as u32;
        // SAFETY: the places of the handles live through the calls; `drop` gives both back.
        unsafe {
            check(context.id, "making a stream for copies", sys::cuStreamCreate(&mut stream, of_stream))?;
            let made = check(context.id, "making an event", sys::cuEventCreate(&mut arrived, of_event));
            if made.is_err() {
                sys::cuStreamDestroy_v2(stream);
                made?;
            }
        }
        Ok(Self { context: Arc::clone(context), handles: Mutex::new(Handles { stream, arrived }) })
    }

    /// Copies pieces to device memory that the caller owns, and waits until they have arrived. The context must be current in this
    /// thread.
    pub(super) fn write(&self, pieces: &[(u64, &[u8])]) -> Result<()> {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, Handles { stream, arrived }) = (self.context.id, &*handles);
        let submit = |&(address, bytes): &(u64, &[u8])| {
            // SAFETY: `Region` has checked that the bytes fit its memory. The source lives until the wait below.
            let code = unsafe { sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), *stream) };
            check(id, "copying experts to it", code)
        };
        let submitted = pieces.iter().try_for_each(submit);
        // SAFETY: event and stream live as long as `self`. The wait also ends copies before one that was refused.
        let waited = unsafe {
            check(id, "copying experts to it", sys::cuEventRecord(*arrived, *stream))
                .and_then(|()| check(id, "copying experts to it", sys::cuEventSynchronize(*arrived)))
        };
        submitted.and(waited)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let handles = self.handles.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the only owner of the handles. A failure here has no caller to report to.
        unsafe {
            if self.context.enter().is_ok() {
                sys::cuEventDestroy_v2(handles.arrived);
                sys::cuStreamDestroy_v2(handles.stream);
            }
        }
    }
}

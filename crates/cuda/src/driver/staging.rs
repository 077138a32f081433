//! Pinned host memory for small copies. The device accesses it while the host continues, and twice as fast as pageable
//! memory for the few numbers of a step.

use super::context::{Context, check};
use super::pages::{Marks, PAGE, PAGES, Pages};
use cudarc::driver::sys;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::PendingRead;
use std::ffi::c_void;
use std::fmt::Debug;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// Pinned memory. Invariant: no copy is in flight when it is dropped.
pub(super) struct Pinned {
    context: Arc<Context>,
    pub(super) memory: *mut u8,
}

/// An event in the stream.
pub(super) struct Event {
    context: Arc<Context>,
    pub(super) event: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread once its context is current there, which `Context::enter`
// sees to; memory and event have one owner.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Send for Event {}

impl Pinned {
    fn new(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        context.enter()?;
        let mut memory = ptr::null_mut();
        // SAFETY: the context is current, the pointer's place lives through the call.
        check(context.id, "pinning host memory", unsafe { sys::cuMemAllocHost_v2(&mut memory, bytes) })?;
        Ok(Self { context: Arc::clone(context), memory: memory.cast() })
    }

    pub(super) fn zeroed(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        let pinned = Self::new(context, bytes)?;
        // SAFETY: the memory was allocated with this number of bytes, and nothing else has its address yet.
        unsafe { pinned.memory.write_bytes(0, bytes) };
        Ok(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the only owner. A failure here has no caller to report to.
        unsafe {
            if self.context.enter().is_ok() {
                sys::cuMemFreeHost(self.memory.cast());
            }
        }
    }
}

impl Event {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        context.enter()?;
        let mut event = ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current, the handle's place lives through the call.
        check(context.id, "making an event", unsafe { sys::cuEventCreate(&mut event, flags) })?;
        Ok(Self { context: Arc::clone(context), event })
    }

    /// Records the event after all work submitted so far. The context must be current in this thread.
    pub(super) fn set(&self) -> Result<()> {
        // SAFETY: event and stream live as long as `self`.
        check(self.context.id, "marking work", unsafe { sys::cuEventRecord(self.event, self.context.stream) })
    }

    /// Waits for the work before the event. The context must be current in this thread.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: the event lives as long as `self`.
        check(self.context.id, "running kernels", unsafe { sys::cuEventSynchronize(self.event) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the only owner. A failure here has no caller to report to.
        unsafe {
            if self.context.enter().is_ok() {
                sys::cuEventDestroy_v2(self.event);
            }
        }
    }
}

/// Memory for copies to the device, with one event per page. All work is done before it is dropped.
pub(super) struct Uploads {
    pages: Pages,
    events: [Event; PAGES],
    memory: Pinned,
}

impl Marks for [Event; PAGES] {
    type Error = Error;

    fn set(&mut self, page: usize) -> Result<()> {
        self[page].set()
    }

    fn wait(&mut self, page: usize) -> Result<()> {
        self[page].wait()
    }
}

impl Uploads {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let event = || Event::new(context);
        let events = [event()?, event()?, event()?, event()?];
        Ok(Self { pages: Pages::default(), events, memory: Pinned::new(context, PAGE * PAGES)? })
    }

    /// Copies bytes to device memory that the caller owns, without waiting. The context must be current in this thread.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let context = &self.memory.context;
        let from = match bytes.len() {
            ..=PAGE => {
                let start = self.pages.take(bytes.len(), &mut self.events)?;
                // SAFETY: inside the pinned memory, of which no copy under way reads these bytes.
                unsafe {
                    let to = self.memory.memory.add(start);
                    ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                    to.cast_const()
                }
            }
            // The driver copies pageable memory before the call returns.
            _ => bytes.as_ptr(),
        };
        // SAFETY: `Device` or `Region` has checked that the bytes fit the region at this address; the source is pinned,
        // or copied before the call returns.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(address, from.cast(), bytes.len(), context.stream) };
        check(context.id, "copying to it", code)
    }
}

/// Memory for one copy to the host: [`PAGE`] bytes.
struct Landing {
    memory: Pinned,
    event: Event,
}

/// Free memory for copies to the host.
#[derive(Default)]
pub(super) struct Landings(Mutex<Vec<Landing>>);

/// A copy to the host in flight.
pub(super) struct Reading {
    /// `None` after the wait.
    landing: Option<Landing>,
    bytes: usize,
    home: Arc<Landings>,
}

impl Landings {
    fn take(&self, context: &Arc<Context>) -> Result<Landing> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let new = || Ok(Landing { memory: Pinned::new(context, PAGE)?, event: Event::new(context)? });
        free.map_or_else(new, Ok)
    }

    /// Starts to copy pieces of device memory (address and bytes) with a total of at most [`PAGE`] bytes. The context
    /// must be current in this thread.
    pub(super) fn read(self: &Arc<Self>, context: &Arc<Context>, pieces: &[(u64, usize)]) -> Result<Reading> {
        let landing = self.take(context)?;
        let to = landing.memory.memory;
        // From here on, dropping the copy waits for it.
        let mut reading = Reading { landing: Some(landing), bytes: 0, home: Arc::clone(self) };
        for &(address, bytes) in pieces.iter().filter(|(_, bytes)| *bytes > 0) {
            // SAFETY: inside the pinned memory, which all pieces together fit; the source is inside a region.
            let code = unsafe {
                let to = to.add(reading.bytes).cast::<c_void>();
                sys::cuMemcpyDtoHAsync_v2(to, address, bytes, context.stream)
            };
            check(context.id, "copying from it", code)?;
            reading.bytes += bytes;
        }
        reading.landing.iter().try_for_each(|landing| landing.event.set())?;
        Ok(reading)
    }
}

impl Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reading({} bytes)", self.bytes)
    }
}

impl PendingRead for Reading {
    fn wait(mut self: Box<Self>) -> Result<Vec<u8>> {
        let mut out = vec![0; self.bytes];
        if let Some(landing) = &self.landing {
            landing.memory.context.enter()?;
            landing.event.wait()?;
            // SAFETY: the bytes were copied there by now; the memories do not overlap.
            unsafe { ptr::copy_nonoverlapping(landing.memory.memory, out.as_mut_ptr(), out.len()) };
        }
        self.landing.take().into_iter().for_each(|landing| self.home.give_back(landing));
        Ok(out)
    }
}

impl Landings {
    fn give_back(&self, landing: Landing) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(landing);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let Some(landing) = self.landing.take() else { return };
        let context = &landing.memory.context;
        // A copy that was not waited for, or not fully submitted, is synchronised first. On failure the device is lost.
        if context.enter().and_then(|()| context.wait()).is_ok() {
            self.home.give_back(landing);
        }
    }
}

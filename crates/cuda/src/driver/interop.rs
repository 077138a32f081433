//! Memory and streams of other libraries, for instance of cudarc, candle or PyTorch.
//!
//! They and this crate use the device's primary context, so an address means the same memory in both. This crate's work
//! runs in a stream of its own, which events order with streams of the caller.

use super::Driver;
use super::context::{Context, check};
use super::staging::Event;
use crate::CudaDevice;
use cudarc::driver::sys::{self, CUpointer_attribute_enum as Attribute};
use gristmill_gpu::{Gpu, Region};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::tensor::{Buffer, DeviceId, Element};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

impl CudaDevice {
    /// `len` elements of device memory of the caller as a buffer, an operand of the backends of this `CudaDevice`. The
    /// address is that of `cuMemAlloc`, `cuMemAllocAsync` or `cudaMalloc`: of cudarc's `CudaSlice`, a pointer of PyTorch.
    /// Dropping the buffer does not free the memory.
    ///
    /// # Safety
    /// Until the buffer is dropped, and until the work that was submitted with it is done:
    ///
    /// - The elements are one allocation or a part of it, and the caller does not free it.
    /// - No other buffer contains any of them.
    /// - Nothing else writes them, and nothing else reads what the work writes. [`CudaDevice::wait_for`] and
    ///   [`CudaDevice::make_wait`] order work of other streams before and after it.
    ///
    /// The work is done after [`Backend::synchronize`](gristmill_kernels::Backend::synchronize), or for a stream after
    /// [`CudaDevice::make_wait`]. A captured graph with the buffer is work as often as it is replayed.
    ///
    /// # Errors
    /// [`Error::Range`] if the address is 0, not a multiple of 16, or of another device or context;
    /// [`Error::Device`] if the first or the last byte is not memory that the driver allocated.
    pub unsafe fn buffer_from_raw<T: Element>(&self, address: u64, len: usize) -> Result<Buffer<T>> {
        let bytes = len.saturating_mul(size_of::<T>());
        let gpu: Arc<dyn Gpu> = self.driver.clone();
        // SAFETY: the caller's promise.
        let region = unsafe { Region::from_raw(&gpu, address, bytes) }?;
        if bytes > 0 {
            let last = address + bytes as u64 - 1;
            [address, last].into_iter().try_for_each(|address| self.driver.expect_memory(address))?;
        }
        Ok(Buffer::on_device(Box::new(region)))
    }

    /// Makes work of this device's backends that is submitted from now on wait for the work that `stream` has now.
    /// Returns without waiting. The stream is a `CUstream` (`cudaStream_t`); null is the default stream.
    ///
    /// # Safety
    /// The stream is one of this device's primary context, and exists.
    ///
    /// # Errors
    /// [`Error::Range`] while work of one of the two streams is captured; [`Error::Device`] if the driver fails.
    pub unsafe fn wait_for(&self, stream: *mut c_void) -> Result<()> {
        let context = &self.driver.shared;
        let stream = stream.cast();
        // SAFETY: the caller's promise, and the context's own stream.
        unsafe {
            expect_no_capture(context, stream)?;
            let event = Event::new(context)?;
            check(context.id, "marking work of another stream", sys::cuEventRecord(event.event, stream))?;
            let code = sys::cuStreamWaitEvent(context.stream, event.event, 0);
            check(context.id, "waiting for another stream", code)
        }
    }

    /// Makes work that is submitted to `stream` from now on wait for the work of this device's backends that was
    /// submitted so far. Returns without waiting.
    ///
    /// # Safety
    /// As for [`CudaDevice::wait_for`].
    ///
    /// # Errors
    /// As for [`CudaDevice::wait_for`].
    pub unsafe fn make_wait(&self, stream: *mut c_void) -> Result<()> {
        let context = &self.driver.shared;
        let stream = stream.cast();
        // SAFETY: the caller's promise; the driver keeps a destroyed event until its waits are done.
        unsafe {
            expect_no_capture(context, stream)?;
            let event = Event::new(context)?;
            event.set()?;
            check(context.id, "making another stream wait", sys::cuStreamWaitEvent(stream, event.event, 0))
        }
    }
}

/// Fails while work of the context's stream or of `stream` is captured: an event would add one stream to the graph of the
/// other. Makes the context current in this thread.
///
/// # Safety
/// `stream` is a stream of the context, or null.
unsafe fn expect_no_capture(context: &Context, stream: sys::CUstream) -> Result<()> {
    context.enter()?;
    for stream in [context.stream, stream] {
        let mut status = sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the streams exist; the place of the status lives through the call.
        check(context.id, "asking for captures", unsafe { sys::cuStreamIsCapturing(stream, &mut status) })?;
        if status != sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE {
            let op = "order of streams";
            let found = "captured".to_owned();
            return Err(Error::Range { op, what: "work of a stream", found, rule: "must not be captured meanwhile" });
        }
    }
    Ok(())
}

impl Driver {
    /// Fails unless an address is memory of this device in its primary context.
    fn expect_memory(&self, address: u64) -> Result<()> {
        let context = &self.shared;
        context.enter()?;
        let what = || format!("looking for memory at {address:#x}");
        let (mut ordinal, mut owner): (i32, sys::CUcontext) = (-1, ptr::null_mut());
        // SAFETY: the places of the results have the attributes' types and live through the calls, which do not read the
        // memory.
        unsafe {
            let to = ptr::from_mut(&mut ordinal).cast();
            let code = sys::cuPointerGetAttribute(to, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
            check(context.id, &what(), code)?;
            let to = ptr::from_mut(&mut owner).cast();
            let code = sys::cuPointerGetAttribute(to, Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, address);
            check(context.id, &what(), code)?;
        }
        let number = u32::try_from(ordinal).ok();
        // Memory of a pool has no context.
        let is_own = owner.is_null() || context.is(owner);
        if number.map(DeviceId::Cuda) != Some(context.id) || !is_own {
            let found = match number {
                Some(number) if is_own => format!("memory of {}", DeviceId::Cuda(number)),
                _ => "memory of another context".to_owned(),
            };
            let rule = "must be memory of this device in its primary context";
            return Err(Error::Range { op: "buffer_from_raw", what: "address", found, rule });
        }
        Ok(())
    }
}

//! Buffers of other libraries, for instance of candle or an application that uses Metal.

use crate::MetalDevice;
use gristmill_gpu::{Gpu, Region};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::tensor::{Buffer, Element};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBuffer, MTLDevice, MTLHazardTrackingMode, MTLResource, MTLStorageMode};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

impl MetalDevice {
    /// `len` elements of a Metal buffer of the caller, from byte `offset` on, as an operand of all backends of this
    /// device. `buffer` is an `id<MTLBuffer>`, of which the crates `objc2-metal` and `metal` return a pointer. It is
    /// retained until the result is dropped and the work with it is done.
    ///
    /// # Safety
    /// - `buffer` is a live `MTLBuffer`. If it is from a heap, it was made with tracked hazards.
    /// - Until the result is dropped, and until the work that was submitted with it is done
    ///   ([`Backend::synchronize`](gristmill_kernels::Backend::synchronize)), nothing else writes these elements, and
    ///   nothing else reads what the work writes. Commands of the caller that write them have completed.
    ///
    /// # Errors
    /// [`Error::View`] if the buffer is shorter; [`Error::Range`] if it is of another device, not shared with the host,
    /// not tracked, or the elements do not start at a multiple of 16 bytes; [`Error::Device`] if another buffer contains
    /// a part of the elements.
    pub unsafe fn buffer_from_raw<T: Element>(
        &self,
        buffer: NonNull<c_void>,
        offset: usize,
        len: usize,
    ) -> Result<Buffer<T>> {
        let gpu: Arc<dyn Gpu> = self.driver.clone();
        let bytes = len.saturating_mul(size_of::<T>());
        if bytes == 0 {
            return Ok(Buffer::on_device(Box::new(Region::new(&gpu, 0, "a buffer of the caller")?)));
        }
        autoreleasepool(|_| {
            let refuse = |what, found: &str, rule| {
                Err(Error::Range { op: "buffer_from_raw", what, found: found.to_owned(), rule })
            };
            let buffer: *mut ProtocolObject<dyn MTLBuffer> = buffer.as_ptr().cast();
            // SAFETY: a live Metal buffer, as the caller promises.
            let Some(buffer) = (unsafe { Retained::retain(buffer) }) else {
                return refuse("buffer", "null", "must be a Metal buffer");
            };
            if buffer.device().registryID() != self.driver.device.registryID() {
                return refuse("buffer", "a buffer of another device", "must be a buffer of this device");
            }
            if buffer.storageMode() != MTLStorageMode::Shared {
                return refuse("storage mode", "another mode", "must be shared with the host");
            }
            if buffer.hazardTrackingMode() == MTLHazardTrackingMode::Untracked {
                return refuse("hazards", "untracked", "must be tracked");
            }
            let address = self.driver.memory.add(buffer, offset, bytes)?;
            // SAFETY: a part of the buffer, which the driver retains until the region is dropped, and which no other
            // region contains; the rest is the caller's promise.
            let region = unsafe { Region::from_raw(&gpu, address, bytes) };
            let region = region.inspect_err(|_| self.driver.memory.free(address))?;
            Ok(Buffer::on_device(Box::new(region)))
        })
    }
}

//! Submitted work that is not synchronised: one command buffer and its open encoder.

use super::compile::{Pipeline, said};
use super::memory::Place;
use super::{error, touch};
use crate::hazards::Hazards;
use gristmill_gpu::Access;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::tensor::DeviceId;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSRange;
use objc2_metal::{
    MTLBarrierScope, MTLBlitCommandEncoder, MTLCommandBuffer, MTLCommandBufferError, MTLCommandBufferStatus,
    MTLCommandEncoder, MTLCommandQueue, MTLComputeCommandEncoder, MTLDispatchType, MTLSize,
};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Maximum number of buffers of a kernel.
pub(super) const MOST_ARGUMENTS: usize = 31;
/// Maximum bytes of an argument by value.
pub(super) const MOST_BYTES: usize = 4096;
/// Threadgroup memory is allocated in units of this number of bytes.
pub(super) const SHARED_UNIT: usize = 16;

/// An argument with its resolved buffer.
pub(super) enum Argument<'a> {
    Buffer { place: Place, bytes: usize, access: Access },
    Null,
    Bytes(&'a [u8]),
}

/// The number of blocks.
pub(super) enum Grid {
    Fixed([u32; 3]),
    Indirect(Place),
}

/// Whether Metal's blit commands accept these offsets and lengths.
pub(super) fn copies(numbers: &[usize]) -> bool {
    numbers.iter().all(|n| n.is_multiple_of(4))
}

/// Work in flight.
pub(super) struct Work {
    id: DeviceId,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    pending: Option<Pending>,
    /// Why the device is lost.
    lost: Option<String>,
}

struct Pending {
    buffer: Retained<ProtocolObject<dyn MTLCommandBuffer>>,
    encoder: Encoder,
}

enum Encoder {
    None,
    Compute(Retained<ProtocolObject<dyn MTLComputeCommandEncoder>>, Hazards),
    Copy(Retained<ProtocolObject<dyn MTLBlitCommandEncoder>>),
}

// SAFETY: command buffers and encoders may be used from any thread, one at a time, which the driver's mutex sees to.
unsafe impl Send for Work {}

impl Work {
    pub(super) fn new(id: DeviceId, queue: Retained<ProtocolObject<dyn MTLCommandQueue>>) -> Self {
        Self { id, queue, pending: None, lost: None }
    }

    /// Whether all work is synchronised.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    pub(super) fn dispatch(
        &mut self,
        pipeline: &Pipeline,
        grid: Grid,
        threads: u32,
        shared: usize,
        args: &[Argument],
    ) -> Result<()> {
        let mut touches = Vec::with_capacity(args.len() + 1);
        for arg in args {
            if let Argument::Buffer { place, bytes, access } = arg {
                touches.push(touch(place, *bytes, *access));
            }
        }
        if let Grid::Indirect(place) = &grid {
            touches.push(touch(place, size_of::<[u32; 3]>(), Access::Read));
        }
        let (encoder, hazards) = self.compute()?;
        if hazards.meet(&touches) {
            encoder.memoryBarrierWithScope(MTLBarrierScope::Buffers);
        }
        encoder.setComputePipelineState(&pipeline.0);
        for (index, arg) in args.iter().enumerate() {
            // SAFETY: fewer arguments than there are places; buffers have the offset, and bytes live through the call,
            // which copies them. That they are what the kernel takes, and that it stays within them, is what the
            // simulator checks.
            unsafe {
                match arg {
                    Argument::Buffer { place, .. } => {
                        encoder.setBuffer_offset_atIndex(Some(&place.buffer), place.offset, index);
                    }
                    Argument::Null => encoder.setBuffer_offset_atIndex(None, 0, index),
                    Argument::Bytes(bytes) => {
                        let Some(start) = NonNull::new(bytes.as_ptr().cast_mut().cast::<c_void>()) else { continue };
                        encoder.setBytes_length_atIndex(start, bytes.len(), index);
                    }
                }
            }
        }
        // SAFETY: every kernel declares the memory at 0 (`PARAMS` in `device_metal.h`); the driver has seen that it
        // fits.
        unsafe { encoder.setThreadgroupMemoryLength_atIndex(shared, 0) };
        let threads = MTLSize { width: threads as usize, height: 1, depth: 1 };
        match grid {
            Grid::Fixed([x, y, z]) => {
                let blocks = MTLSize { width: x as usize, height: y as usize, depth: z as usize };
                encoder.dispatchThreadgroups_threadsPerThreadgroup(blocks, threads);
            }
            // SAFETY: three words are there, written by a kernel before, as the simulator checks.
            Grid::Indirect(place) => unsafe {
                encoder.dispatchThreadgroupsWithIndirectBuffer_indirectBufferOffset_threadsPerThreadgroup(
                    &place.buffer,
                    place.offset,
                    threads,
                );
            },
        }
        Ok(())
    }

    /// Fills with zeros; offset and length must satisfy [`copies`].
    pub(super) fn fill(&mut self, place: &Place, bytes: usize) -> Result<()> {
        self.copier()?.fillBuffer_range_value(&place.buffer, NSRange::new(place.offset, bytes), 0);
        Ok(())
    }

    /// Copies; offsets and length must satisfy [`copies`].
    pub(super) fn copy(&mut self, from: &Place, to: &Place, bytes: usize) -> Result<()> {
        let copier = self.copier()?;
        // SAFETY: both ranges are inside their buffers, as `Device::copy` has checked.
        unsafe {
            copier.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                &from.buffer,
                from.offset,
                &to.buffer,
                to.offset,
                bytes,
            );
        }
        Ok(())
    }

    /// Submits all work and waits for it.
    pub(super) fn finish(&mut self) -> Result<()> {
        let Some(mut pending) = self.pending.take() else { return self.usable() };
        pending.end();
        pending.buffer.commit();
        pending.buffer.waitUntilCompleted();
        if pending.buffer.status() == MTLCommandBufferStatus::Completed {
            return Ok(());
        }
        let (reason, lost) = match pending.buffer.error() {
            Some(refused) => (said(&refused) + remedy(refused.code()), is_lost(refused.code())),
            None => ("it did not say why".to_owned(), false),
        };
        if lost {
            self.lost = Some(reason.clone());
        }
        Err(error(self.id, "running kernels", reason))
    }

    /// Fails if the device is lost.
    fn usable(&self) -> Result<()> {
        self.lost.as_ref().map_or(Ok(()), |reason| Err(error(self.id, "the device is lost", reason.clone())))
    }

    fn pending(&mut self) -> Result<&mut Pending> {
        self.usable()?;
        if self.pending.is_none() {
            let buffer = self.queue.commandBuffer().ok_or_else(|| none_left(self.id))?;
            self.pending = Some(Pending { buffer, encoder: Encoder::None });
        }
        self.pending.as_mut().ok_or_else(|| none_left(self.id))
    }

    /// The compute encoder, opened if necessary.
    fn compute(&mut self) -> Result<(&ProtocolObject<dyn MTLComputeCommandEncoder>, &mut Hazards)> {
        let id = self.id;
        let pending = self.pending()?;
        if !matches!(pending.encoder, Encoder::Compute(..)) {
            pending.end();
            let encoder = pending.buffer.computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent);
            pending.encoder = Encoder::Compute(encoder.ok_or_else(|| none_left(id))?, Hazards::default());
        }
        match &mut pending.encoder {
            Encoder::Compute(encoder, hazards) => Ok((encoder, hazards)),
            _ => Err(none_left(id)),
        }
    }

    /// The copy encoder, opened if necessary. Metal's tracking orders copies with other encoders and with each other.
    fn copier(&mut self) -> Result<&ProtocolObject<dyn MTLBlitCommandEncoder>> {
        let id = self.id;
        let pending = self.pending()?;
        if !matches!(pending.encoder, Encoder::Copy(_)) {
            pending.end();
            pending.encoder = Encoder::Copy(pending.buffer.blitCommandEncoder().ok_or_else(|| none_left(id))?);
        }
        match &pending.encoder {
            Encoder::Copy(encoder) => Ok(encoder),
            _ => Err(none_left(id)),
        }
    }
}

impl Pending {
    /// Ends the open encoder.
    fn end(&mut self) {
        match std::mem::replace(&mut self.encoder, Encoder::None) {
            Encoder::None => {}
            Encoder::Compute(encoder, _) => encoder.endEncoding(),
            Encoder::Copy(encoder) => encoder.endEncoding(),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Metal aborts the process if an open encoder is released.
        self.end();
    }
}

fn none_left(id: DeviceId) -> Error {
    error(id, "encoding work", "Metal has no room for more; use smaller batches")
}

/// Whether a failure means that the device is lost.
fn is_lost(code: isize) -> bool {
    let code = MTLCommandBufferError(code as usize);
    [MTLCommandBufferError::AccessRevoked, MTLCommandBufferError::DeviceRemoved].contains(&code)
}

/// Advice for a failure.
fn remedy(code: isize) -> &'static str {
    match MTLCommandBufferError(code as usize) {
        MTLCommandBufferError::OutOfMemory => "; use a smaller context, batch or model",
        MTLCommandBufferError::Timeout => "; another program may keep the GPU busy, or use smaller batches",
        MTLCommandBufferError::AccessRevoked | MTLCommandBufferError::DeviceRemoved => {
            "; the device is lost to this process: start again, or use the CPU"
        }
        _ => "; `gristmill doctor` tests the device; the CPU works without it",
    }
}

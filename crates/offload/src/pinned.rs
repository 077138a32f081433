//! Pinned host memory: the host and kernels access it at the same time.

#![allow(unsafe_code)]

use gristmill_gpu::{Gpu, Region, host_link};
use gristmill_kernels::error::Result;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Pinned memory of a device.
#[derive(Debug)]
pub(crate) struct Pinned {
    region: Region,
}

/// The only access of host threads to the bytes of pinned memory; its words have atomics.
#[derive(Debug)]
pub(crate) struct HostSide {
    memory: Arc<Pinned>,
}

/// Memory of the caller that is pinned until this is dropped.
#[derive(Debug)]
pub(crate) struct PinnedBytes {
    gpu: Arc<dyn Gpu>,
    address: u64,
}

impl PinnedBytes {
    /// Pins bytes, whose owner drops this before them. `None` if the system refuses.
    pub(crate) fn new(gpu: &Arc<dyn Gpu>, bytes: &[u8]) -> Result<Option<Self>> {
        let address = bytes.as_ptr().expose_provenance() as u64;
        Ok(host_link(&**gpu)?.pin(bytes)?.then(|| Self { gpu: Arc::clone(gpu), address }))
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        self.gpu.host_link().into_iter().for_each(|link| link.unpin(self.address));
    }
}

impl Pinned {
    /// Zeroed memory, and the host's only access to it.
    pub(crate) fn new(gpu: &Arc<dyn Gpu>, bytes: usize, what: &'static str) -> Result<(Arc<Self>, HostSide)> {
        let memory = Arc::new(Self { region: Region::pinned(gpu, bytes, what)? });
        Ok((Arc::clone(&memory), HostSide { memory }))
    }

    /// The memory as kernels access it.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// The host's address of a range.
    fn host(&self, offset: usize, bytes: usize) -> Result<*mut u8> {
        let address = self.region.range(offset, bytes)?;
        Ok(ptr::with_exposed_provenance_mut(address as usize))
    }
}

impl HostSide {
    /// A word that kernels write or read at any time.
    pub(crate) fn word(&self, offset: usize) -> Result<&AtomicU32> {
        let at = self.memory.host(offset, size_of::<AtomicU32>())?.cast();
        // SAFETY: inside pinned memory, which lives as long as `self`. Offsets are multiples of 4 from an address that is
        // aligned to 256 bytes. No host thread accesses the word otherwise: `ControlWords` are no part of the ranges below.
        Ok(unsafe { AtomicU32::from_ptr(at) })
    }

    /// The same of 64 bits.
    pub(crate) fn long_word(&self, offset: usize) -> Result<&AtomicU64> {
        let at = self.memory.host(offset, size_of::<AtomicU64>())?.cast();
        // SAFETY: as above, with a multiple of 8.
        Ok(unsafe { AtomicU64::from_ptr(at) })
    }

    /// Copies bytes that a kernel wrote before the request that the caller has seen.
    pub(crate) fn read(&mut self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.memory.host(offset, bytes.len())?;
        // SAFETY: inside pinned memory. The kernel wrote the bytes before its request, which the caller has acquired, and
        // writes no others before the answer. `&mut self` keeps other host threads away.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes for kernels to read after the next answer.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.memory.host(offset, bytes.len())?;
        // SAFETY: as above; kernels read the bytes only after the answer. If a kernel has stopped to wait for this answer, it
        // reads none of them.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}

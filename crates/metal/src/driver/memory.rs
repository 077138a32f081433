//! Memory that the host and the device share: which buffer has an address.

use super::error;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::tensor::DeviceId;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLAllocation, MTLBuffer, MTLCommandQueue, MTLDevice, MTLResidencySet, MTLResidencySetDescriptor,
    MTLResourceOptions,
};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Alignment of addresses that the seam asks for.
const ALIGNMENT: usize = 256;
/// The granularity of mapped memory: a page of Apple's processors.
const PAGE: usize = 16 << 10;

/// All of a device's memory that this process has.
pub(super) struct Memory {
    id: DeviceId,
    table: Mutex<Table>,
}

struct Table {
    /// By the first address that was given out.
    buffers: BTreeMap<u64, Entry>,
    /// Keeps all buffers where the device finds them, on systems that can.
    residency: Option<Retained<ProtocolObject<dyn MTLResidencySet>>>,
    /// Whether it has changed.
    stale: bool,
}

struct Entry {
    buffer: Retained<ProtocolObject<dyn MTLBuffer>>,
    /// Bytes of the buffer before the address: mapped memory need not begin with a page.
    before: usize,
    bytes: usize,
    mapped: bool,
}

// SAFETY: buffers and residency sets may be used from any thread, one at a time, which the mutex sees to.
unsafe impl Send for Table {}

/// A place in a buffer.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) buffer: Retained<ProtocolObject<dyn MTLBuffer>>,
    pub(super) offset: usize,
}

impl Place {
    /// Where the host has it.
    pub(super) fn host(&self) -> *mut u8 {
        self.buffer.contents().as_ptr().cast::<u8>().wrapping_add(self.offset)
    }
}

impl Memory {
    pub(super) fn new(
        id: DeviceId,
        device: &ProtocolObject<dyn MTLDevice>,
        queue: &ProtocolObject<dyn MTLCommandQueue>,
    ) -> Self {
        // Without one, what a command buffer names becomes resident for it, as always.
        let residency = if objc2::available!(macos = 15.0) {
            device.newResidencySetWithDescriptor_error(&MTLResidencySetDescriptor::new()).ok()
        } else {
            None
        };
        if let Some(set) = &residency {
            queue.addResidencySet(set);
        }
        Self { id, table: Mutex::new(Table { buffers: BTreeMap::new(), residency, stale: false }) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all of it, own and mapped.
    pub(super) fn bytes(&self) -> u64 {
        self.table().buffers.values().map(|entry| entry.bytes as u64).sum()
    }

    pub(super) fn allocate(
        &self,
        device: &ProtocolObject<dyn MTLDevice>,
        bytes: usize,
        what: &'static str,
    ) -> Result<u64> {
        let refused = Error::OutOfMemory { what, bytes };
        let Some(length) = bytes.checked_next_multiple_of(ALIGNMENT).filter(|&n| n <= device.maxBufferLength()) else {
            return Err(refused);
        };
        let Some(buffer) = device.newBufferWithLength_options(length, MTLResourceOptions::StorageModeShared) else {
            return Err(refused);
        };
        let address = buffer.contents().addr().get() as u64;
        self.table().insert(address, Entry { buffer, before: 0, bytes, mapped: false });
        Ok(address)
    }

    /// Whole pages around the bytes become a buffer. `None` if the system refuses.
    pub(super) fn map_host(&self, device: &ProtocolObject<dyn MTLDevice>, bytes: &[u8]) -> Option<u64> {
        let address = bytes.as_ptr().addr();
        let before = address % PAGE;
        let length = before.checked_add(bytes.len())?.checked_next_multiple_of(PAGE)?;
        if length > device.maxBufferLength() {
            return None;
        }
        let start = NonNull::new(bytes.as_ptr().wrapping_sub(before).cast_mut().cast::<c_void>())?;
        // Kernels only read it: there is nothing to track.
        let options = MTLResourceOptions::StorageModeShared | MTLResourceOptions::HazardTrackingModeUntracked;
        // SAFETY: pages of this process, each with some of the bytes, which stay until they are freed; kernels only
        // read them, and no more than the bytes, as the simulator checks.
        let buffer =
            unsafe { device.newBufferWithBytesNoCopy_length_options_deallocator(start, length, options, None) }?;
        let entry = Entry { buffer, before, bytes: bytes.len(), mapped: true };
        let mut table = self.table();
        // The same bytes twice would be one entry.
        if table.buffers.contains_key(&(address as u64)) {
            return None;
        }
        table.insert(address as u64, entry);
        Some(address as u64)
    }

    pub(super) fn is_mapped(&self, address: u64) -> bool {
        self.table().buffers.get(&address).is_some_and(|entry| entry.mapped)
    }

    pub(super) fn free(&self, address: u64) {
        let mut table = self.table();
        if let Some(entry) = table.buffers.remove(&address) {
            if let Some(set) = &table.residency {
                set.removeAllocation(allocation(&entry.buffer));
            }
            table.stale = true;
        }
    }

    /// The buffer that has an address.
    pub(super) fn place(&self, address: u64) -> Result<Place> {
        let table = self.table();
        let found = table.buffers.range(..=address).next_back();
        let inside = found.filter(|(start, entry)| address - **start <= entry.bytes as u64);
        let (start, entry) =
            inside.ok_or_else(|| error(self.id, "looking for memory", "no buffer has this address"))?;
        Ok(Place { buffer: entry.buffer.clone(), offset: entry.before + (address - start) as usize })
    }

    /// Makes all of it resident, if that has changed.
    pub(super) fn make_resident(&self) {
        let mut table = self.table();
        if !std::mem::take(&mut table.stale) {
            return;
        }
        if let Some(set) = &table.residency {
            set.commit();
            set.requestResidency();
        }
    }
}

impl Table {
    fn insert(&mut self, address: u64, entry: Entry) {
        if let Some(set) = &self.residency {
            set.addAllocation(allocation(&entry.buffer));
        }
        self.stale = true;
        self.buffers.insert(address, entry);
    }
}

fn allocation(buffer: &ProtocolObject<dyn MTLBuffer>) -> &ProtocolObject<dyn MTLAllocation> {
    ProtocolObject::from_ref(buffer)
}

/// Host bytes in a buffer of their own, to be copied from.
pub(super) fn staging(id: DeviceId, device: &ProtocolObject<dyn MTLDevice>, bytes: &[u8]) -> Result<Place> {
    let none = || error(id, "copying to it", format!("no buffer for {} bytes on their way", bytes.len()));
    let start = NonNull::new(bytes.as_ptr().cast_mut().cast::<c_void>()).ok_or_else(none)?;
    // SAFETY: as many bytes are there, and Metal copies them before it returns.
    let buffer =
        unsafe { device.newBufferWithBytes_length_options(start, bytes.len(), MTLResourceOptions::StorageModeShared) };
    Ok(Place { buffer: buffer.ok_or_else(none)?, offset: 0 })
}

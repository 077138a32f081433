//! Memory that the host and the device share: maps addresses to buffers.

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
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Address alignment that `gristmill_gpu::Gpu` requires.
const ALIGNMENT: usize = 256;
/// Granularity of mapped memory: a page of Apple processors.
const PAGE: usize = 16 << 10;

/// All device memory of this process.
pub(super) struct Memory {
    id: DeviceId,
    table: Mutex<Table>,
}

struct Table {
    /// Buffers by their start address.
    buffers: BTreeMap<u64, Entry>,
    /// Keeps all buffers resident, on systems with residency sets.
    residency: Option<Retained<ProtocolObject<dyn MTLResidencySet>>>,
    /// Whether the set has changed.
    stale: bool,
}

struct Entry {
    buffer: Retained<ProtocolObject<dyn MTLBuffer>>,
    /// Bytes of the buffer before the address: mapped memory can start within a page.
    before: usize,
    bytes: usize,
    origin: Origin,
}

/// Where the memory of an entry comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Allocated,
    /// Host memory that is mapped.
    Mapped,
    /// A range of a Metal buffer of the caller, which can have other ranges here.
    Caller,
}

// SAFETY: buffers and residency sets may be used from any thread, one at a time, which the mutex sees to.
unsafe impl Send for Table {}

/// An offset in a buffer.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) buffer: Retained<ProtocolObject<dyn MTLBuffer>>,
    pub(super) offset: usize,
}

impl Place {
    /// The host address.
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
        // Without a residency set, Metal makes the buffers that a command buffer names resident.
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

    /// Total bytes, allocated and mapped.
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
        self.table().insert(address, Entry { buffer, before: 0, bytes, origin: Origin::Allocated });
        Ok(address)
    }

    /// Wraps the whole pages around the bytes in a buffer. `None` if the system refuses.
    pub(super) fn map_host(&self, device: &ProtocolObject<dyn MTLDevice>, bytes: &[u8]) -> Option<u64> {
        let address = bytes.as_ptr().addr();
        let before = address % PAGE;
        let length = before.checked_add(bytes.len())?.checked_next_multiple_of(PAGE)?;
        if length > device.maxBufferLength() {
            return None;
        }
        let start = NonNull::new(bytes.as_ptr().wrapping_sub(before).cast_mut().cast::<c_void>())?;
        // Kernels only read it, so it needs no tracking.
        let options = MTLResourceOptions::StorageModeShared | MTLResourceOptions::HazardTrackingModeUntracked;
        // SAFETY: pages of this process, each with some of the bytes, which stay until they are freed; kernels only
        // read them, and no more than the bytes, as the simulator checks.
        let buffer =
            unsafe { device.newBufferWithBytesNoCopy_length_options_deallocator(start, length, options, None) }?;
        let entry = Entry { buffer, before, bytes: bytes.len(), origin: Origin::Mapped };
        let mut table = self.table();
        // Mapping the same bytes twice would overwrite the entry.
        if table.buffers.contains_key(&(address as u64)) {
            return None;
        }
        table.insert(address as u64, entry);
        Some(address as u64)
    }

    /// Adds `bytes` bytes from an offset of a buffer of the caller on, and returns their address. Retains the buffer.
    pub(super) fn add(
        &self,
        buffer: Retained<ProtocolObject<dyn MTLBuffer>>,
        offset: usize,
        bytes: usize,
    ) -> Result<u64> {
        let length = buffer.length();
        let Some(end) = offset.checked_add(bytes).filter(|end| *end <= length) else {
            return Err(Error::View { offset, rows: 1, cols: bytes, stride: bytes, len: length });
        };
        let start = buffer.contents().addr().get() as u64;
        let (address, end) = (start + offset as u64, start + end as u64);
        let mut table = self.table();
        let last = table.buffers.range(..end).next_back();
        if last.is_some_and(|(start, entry)| start + entry.bytes as u64 > address) {
            return Err(error(self.id, "adding a buffer", "another buffer contains a part of this range"));
        }
        table.insert(address, Entry { buffer, before: offset, bytes, origin: Origin::Caller });
        Ok(address)
    }

    pub(super) fn is_mapped(&self, address: u64) -> bool {
        self.table().buffers.get(&address).is_some_and(|entry| entry.origin == Origin::Mapped)
    }

    pub(super) fn free(&self, address: u64) {
        let mut table = self.table();
        if let Some(entry) = table.buffers.remove(&address) {
            let same = |other: &Entry| ptr::eq(&*other.buffer, &*entry.buffer);
            let is_used = entry.origin == Origin::Caller && table.buffers.values().any(same);
            if let Some(set) = table.residency.as_ref().filter(|_| !is_used) {
                set.removeAllocation(allocation(&entry.buffer));
            }
            table.stale = true;
        }
    }

    /// The buffer that contains an address.
    pub(super) fn place(&self, address: u64) -> Result<Place> {
        let table = self.table();
        let found = table.buffers.range(..=address).next_back();
        let inside = found.filter(|(start, entry)| address - **start <= entry.bytes as u64);
        let (start, entry) =
            inside.ok_or_else(|| error(self.id, "looking for memory", "no buffer has this address"))?;
        Ok(Place { buffer: entry.buffer.clone(), offset: entry.before + (address - start) as usize })
    }

    /// Makes all buffers resident, if the set has changed.
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

/// Copies host bytes to a temporary buffer, the source of a copy.
pub(super) fn staging(id: DeviceId, device: &ProtocolObject<dyn MTLDevice>, bytes: &[u8]) -> Result<Place> {
    let none = || error(id, "copying to it", format!("no buffer for {} bytes on their way", bytes.len()));
    let start = NonNull::new(bytes.as_ptr().cast_mut().cast::<c_void>()).ok_or_else(none)?;
    // SAFETY: as many bytes are there, and Metal copies them before it returns.
    let buffer =
        unsafe { device.newBufferWithBytes_length_options(start, bytes.len(), MTLResourceOptions::StorageModeShared) };
    Ok(Place { buffer: buffer.ok_or_else(none)?, offset: 0 })
}

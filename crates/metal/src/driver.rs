//! Apple's Metal as a [`Gpu`]. Unverified on hardware: it type-checks, and a simulator runs its launches.
//!
//! The host and the device share memory, so addresses are host addresses. Launches go into one command buffer until the
//! host reads. The command buffer has one compute encoder whose dispatches can overlap. Barriers separate launches
//! whose declared accesses conflict ([`super::hazards`]).
//!
//! Metal tracks all resources except mapped ones, which are read-only. Tracking orders encoders and command buffers, so
//! copies need no fences. A step has one of each, so tracking costs little. Tracking does not order the dispatches of
//! one encoder; dispatches that Metal orders cannot overlap.
//!
//! `driver/` contains memory, also of other libraries, pending work and the compiler.

#![allow(unsafe_code)]

mod compile;
mod interop;
mod memory;
mod work;

use compile::Compiler;
use gristmill_gpu::{Access, Arg, Gpu, Launch, Properties, Region, Unit};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::Graph;
use gristmill_kernels::tensor::DeviceId;
use memory::Memory;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLCopyAllDevices, MTLDevice, MTLGPUFamily};
use std::fmt::{self, Debug};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use work::{Grid, Work};

/// The oldest supported family: M1.
const OLDEST_FAMILY: isize = 7;
/// The newest family that is queried by number; newer GPUs belong to it too.
const YOUNGEST_FAMILY: isize = 10;

/// A Metal device. Only [`crate::MetalDevice`] creates one, and it is private to this crate. [`gristmill_gpu::Device`]
/// checks its addresses and launches.
pub(crate) struct Driver {
    properties: Properties,
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    compiler: Compiler,
    memory: Memory,
    work: Mutex<Work>,
}

impl Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({:?})", self.properties)
    }
}

/// Devices of the system.
pub fn count() -> u32 {
    autoreleasepool(|_| u32::try_from(MTLCopyAllDevices().len()).unwrap_or(0))
}

fn error(id: DeviceId, what: &str, reason: impl Into<String>) -> Error {
    Error::Device { device: id, what: what.to_owned(), reason: reason.into() }
}

impl Driver {
    /// Opens a device by index.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no such device, or if it is not an Apple GPU.
    pub(crate) fn open(number: u32) -> Result<Arc<Self>> {
        autoreleasepool(|_| Self::find(number)).map(Arc::new)
    }

    fn find(number: u32) -> Result<Self> {
        let id = DeviceId::Metal(number);
        let devices = MTLCopyAllDevices();
        let reason = || format!("there are {}, numbered from 0; the device `cpu` is everywhere", devices.len());
        let device = devices.iter().nth(number as usize).ok_or_else(|| error(id, "no such device", reason()))?;
        // Apple's GPU families have the numbers 1001 and up.
        let has = |family: &isize| device.supportsFamily(MTLGPUFamily(1000 + family));
        let name = device.name().to_string();
        let family = (OLDEST_FAMILY..=YOUNGEST_FAMILY).rev().find(has).filter(|_| device.hasUnifiedMemory());
        let Some(family) = family else {
            let reason = format!("{name} is not of the M1's family or younger; use the CPU");
            return Err(error(id, "the device is too old", reason));
        };
        let properties = Properties {
            id,
            name,
            architecture: family as u32,
            multiprocessors: 0,
            shared_bytes: u32::try_from(device.maxThreadgroupMemoryLength()).unwrap_or(u32::MAX),
            memory: device.recommendedMaxWorkingSetSize(),
        };
        let queue = device.newCommandQueue().ok_or_else(|| error(id, "making a queue", "the system has none left"))?;
        let memory = Memory::new(id, &device, &queue);
        let compiler = Compiler::new(id, device.clone());
        Ok(Self { properties, device, compiler, memory, work: Mutex::new(Work::new(id, queue)) })
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all submitted work is done.
    fn finish(&self, work: &mut Work) -> Result<()> {
        self.memory.make_resident();
        work.finish()
    }

    fn dispatch(&self, launch: &Launch, grid: Grid) -> Result<()> {
        let id = self.properties.id;
        let pipeline = self.compiler.pipeline(&launch.kernel, launch.block)?;
        let refuse = |reason: String| Err(error(id, launch.kernel.entry, reason));
        let shared = (launch.shared as usize).next_multiple_of(work::SHARED_UNIT).max(work::SHARED_UNIT);
        let all = shared + pipeline.shared();
        if all > self.properties.shared_bytes as usize {
            return refuse(format!(
                "{all} bytes of threadgroup memory, and a device has {}",
                self.properties.shared_bytes
            ));
        }
        if launch.args.len() > work::MOST_ARGUMENTS {
            return refuse(format!("{} arguments, and Metal has {}", launch.args.len(), work::MOST_ARGUMENTS));
        }
        let mut work = self.work();
        let mut args = Vec::with_capacity(launch.args.len());
        for arg in launch.args {
            args.push(match arg {
                Arg::Buffer { region, offset, bytes, access } => {
                    let place = self.memory.place(region.address() + *offset as u64)?;
                    work::Argument::Buffer { place, bytes: *bytes, access: *access }
                }
                Arg::Null => work::Argument::Null,
                Arg::Bytes(bytes) if bytes.len() <= work::MOST_BYTES => work::Argument::Bytes(bytes),
                Arg::Bytes(bytes) => return refuse(format!("an argument of {} bytes", bytes.len())),
                Arg::Tiles(_) => return refuse("a matrix in tiles".to_owned()),
            });
        }
        work.dispatch(&pipeline, grid, launch.block, shared, &args)
    }
}

impl Gpu for Driver {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_memory(&self) -> Result<u64> {
        // Apple does not document whether mapped memory counts as allocated; it is counted here.
        let taken = self.memory.bytes().max(self.device.currentAllocatedSize() as u64);
        Ok(self.properties.memory.saturating_sub(taken))
    }

    fn allocate(&self, bytes: usize, what: &'static str) -> Result<u64> {
        autoreleasepool(|_| self.memory.allocate(&self.device, bytes, what))
    }

    fn map_host(&self, bytes: &[u8]) -> Result<Option<u64>> {
        autoreleasepool(|_| Ok(self.memory.map_host(&self.device, bytes)))
    }

    fn free(&self, address: u64) {
        // Pending and in-flight work retains its buffers. It does not retain the pages of mapped memory, so this waits.
        autoreleasepool(|_| {
            if self.memory.is_mapped(address) {
                // The next read reports a failure.
                let _ = self.finish(&mut self.work());
            }
            self.memory.free(address);
        });
    }

    fn release(&self, address: u64) {
        // Pending and in-flight work retains its buffers.
        autoreleasepool(|_| self.memory.free(address));
    }

    fn zero(&self, address: u64, bytes: usize) -> Result<()> {
        autoreleasepool(|_| {
            let mut work = self.work();
            let place = self.memory.place(address)?;
            if !work.is_idle() && work::copies(&[place.offset, bytes]) {
                return work.fill(&place, bytes);
            }
            self.finish(&mut work)?;
            // SAFETY: a `Region` zeroes its own memory, and `Device` its flag; the device does not use it now.
            unsafe { place.host().write_bytes(0, bytes) };
            Ok(())
        })
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        autoreleasepool(|_| {
            let mut work = self.work();
            let place = self.memory.place(address)?;
            if !work.is_idle() && work::copies(&[place.offset, bytes.len()]) {
                let staging = memory::staging(self.properties.id, &self.device, bytes)?;
                return work.copy(&staging, &place, bytes.len());
            }
            self.finish(&mut work)?;
            // SAFETY: `Device` or `Region` has checked that the bytes fit the region, which is not mapped, so that no
            // reference to its memory exists.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place.host(), bytes.len()) };
            Ok(())
        })
    }

    fn read(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        autoreleasepool(|_| {
            self.finish(&mut self.work())?;
            for (address, bytes) in pieces.iter_mut().filter(|(_, bytes)| !bytes.is_empty()) {
                let place = self.memory.place(*address)?;
                // SAFETY: `Device` has checked that the range is inside a region of this driver.
                unsafe { ptr::copy_nonoverlapping(place.host(), bytes.as_mut_ptr(), bytes.len()) };
            }
            Ok(())
        })
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        autoreleasepool(|_| {
            let (from, to) = (self.memory.place(from)?, self.memory.place(to)?);
            let mut work = self.work();
            if work::copies(&[from.offset, to.offset, bytes]) {
                return work.copy(&from, &to, bytes);
            }
            self.finish(&mut work)?;
            // SAFETY: as for writing; `Device::copy` has checked both ranges, and that they do not overlap.
            unsafe { ptr::copy_nonoverlapping(from.host(), to.host(), bytes) };
            Ok(())
        })
    }

    fn launch(&self, launch: &Launch) -> Result<()> {
        autoreleasepool(|_| self.dispatch(launch, Grid::Fixed(launch.grid)))
    }

    fn launch_indirect(&self, launch: &Launch, grid: &Region, offset: usize) -> Result<()> {
        autoreleasepool(|_| {
            let place = self.memory.place(grid.address() + offset as u64)?;
            self.dispatch(launch, Grid::Indirect(place))
        })
    }

    fn capture(&self, _work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
        Ok(None)
    }

    fn prepare(&self, unit: &Unit) -> Result<()> {
        autoreleasepool(|_| self.compiler.prepare(unit))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // No caller is left to report a failure to.
        autoreleasepool(|_| drop(self.finish(&mut self.work())));
    }
}

/// The range of memory that a kernel accesses, for [`super::hazards`].
fn touch(place: &memory::Place, bytes: usize, access: Access) -> (std::ops::Range<u64>, Access) {
    let start = place.host().addr() as u64;
    (start..start + bytes as u64, access)
}

//! Apple's Metal as a [`Gpu`]. Unverified on hardware: it type-checks, and what it launches runs in a simulator.
//!
//! Memory is shared with the host, so addresses are the host's. What is launched goes into one command buffer, with one
//! compute encoder whose dispatches may overlap, until the host reads: barriers stand where declared access conflicts
//! ([`super::hazards`]). Resources are tracked by Metal, except mapped ones, which are only read: tracking orders
//! encoders and command buffers, of which a step has one, so it costs little, and copies need no fences. It does not
//! order dispatches of one encoder; those that Metal orders one by one cannot overlap.
//!
//! `driver/` has memory, pending work, and the compiler.

#![allow(unsafe_code)]

mod compile;
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

/// The oldest family, that of the M1.
const OLDEST_FAMILY: isize = 7;
/// The youngest that is asked for by number; younger ones are of its family too.
const YOUNGEST_FAMILY: isize = 10;

/// A Metal device. Only [`crate::MetalDevice`] makes one, and nobody outside this crate sees it: its addresses and
/// launches are those of [`gristmill_gpu::Device`], which checks them.
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

/// Devices that the system has.
pub fn count() -> u32 {
    autoreleasepool(|_| u32::try_from(MTLCopyAllDevices().len()).unwrap_or(0))
}

fn error(id: DeviceId, what: &str, reason: impl Into<String>) -> Error {
    Error::Device { device: id, what: what.to_owned(), reason: reason.into() }
}

impl Driver {
    /// Opens a device by its number.
    ///
    /// # Errors
    /// [`Error::Device`]: there is no such device, or it is not one of Apple's own.
    pub(crate) fn open(number: u32) -> Result<Arc<Self>> {
        autoreleasepool(|_| Self::find(number)).map(Arc::new)
    }

    fn find(number: u32) -> Result<Self> {
        let (id, devices) = (DeviceId::Metal(number), MTLCopyAllDevices());
        let reason = || format!("there are {}, numbered from 0; the device `cpu` is everywhere", devices.len());
        let device = devices.iter().nth(number as usize).ok_or_else(|| error(id, "no such device", reason()))?;
        // Apple's families have the numbers 1001 and up.
        let has = |family: &isize| device.supportsFamily(MTLGPUFamily(1000 + family));
        let name = device.name().to_string();
        let family = (OLDEST_FAMILY..=YOUNGEST_FAMILY).rev().find(has).filter(|_| device.hasUnifiedMemory());
        let Some(family) = family else {
            let reason = format!("{name} is not of the M1's family or younger; use `--device cpu`");
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

    /// Waits until all work is done.
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
        // Work that was not sent off yet, or not done, keeps its buffers. Mapped memory goes away by itself.
        autoreleasepool(|_| {
            if self.memory.is_mapped(address) {
                // A failure is the next read's to tell.
                let _ = self.finish(&mut self.work());
            }
            self.memory.free(address);
        });
    }

    fn zero(&self, address: u64, bytes: usize) -> Result<()> {
        autoreleasepool(|_| {
            let (mut work, place) = (self.work(), self.memory.place(address)?);
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
            let (mut work, place) = (self.work(), self.memory.place(address)?);
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
        // Nobody is left to be told of a failure.
        autoreleasepool(|_| drop(self.finish(&mut self.work())));
    }
}

/// The range of memory that a kernel accesses, for [`super::hazards`].
fn touch(place: &memory::Place, bytes: usize, access: Access) -> (std::ops::Range<u64>, Access) {
    let start = place.host().addr() as u64;
    (start..start + bytes as u64, access)
}

//! The interface between operations and a device: memory regions, launches as data, the trait [`Gpu`].
//!
//! # A launch is data
//!
//! A launch is data: kernel, grid, and arguments with their access. Below the trait `Gpu` is a driver, or the
//! simulator. *Only a `Launch` starts a kernel. The host's choice of kernel and grid depends only on values that are
//! known on the host, because a captured graph replays it.*

use crate::host_link::HostLink;
use crate::rank_link::RankLink;
use crate::shared_struct::SharedStruct;
use crate::upload::{self, Make, Written};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Graph, PendingRead};
use gristmill_kernels::tensor::{Buffer, DeviceId, DeviceMemory, RowLayout, SharedBytes, View, ViewMut};
use std::any::Any;
use std::fmt::{self, Debug};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Properties of a device.
#[derive(Clone, Debug)]
pub struct Properties {
    /// Which device.
    pub id: DeviceId,
    /// Its name, for people.
    pub name: String,
    /// The compute capability of CUDA as one number, 90 for 9.0; the family of Apple's GPUs, 7 for the M1.
    pub architecture: u32,
    /// Multiprocessors; 0 if the system does not say.
    pub multiprocessors: u32,
    /// Shared memory that a block can have, in bytes.
    pub shared_bytes: u32,
    /// Memory of the device, in bytes.
    pub memory: u64,
}

/// [`Gpu::start_read`] by [`Gpu::read`].
pub fn read_now(gpu: &(impl Gpu + ?Sized), pieces: &[(u64, usize)]) -> Result<Box<dyn PendingRead>> {
    let mut bytes = vec![0; pieces.iter().map(|(_, bytes)| bytes).sum()];
    let mut rest = &mut bytes[..];
    let mut targets = Vec::with_capacity(pieces.len());
    for &(address, bytes) in pieces {
        let (own, behind) = rest.split_at_mut(bytes);
        targets.push((address, own));
        rest = behind;
    }
    gpu.read(&mut targets)?;
    Ok(Box::new(bytes))
}

/// A device that runs kernels. Work of one device is done in the order in which it is given, except [`Gpu::allocate`].
///
/// Addresses are of the device's memory, or of memory of the caller ([`Region::from_raw`]). Only [`Region`] allocates and
/// frees, and only [`Region`] and [`crate::Device`] pass addresses; both check that a range is inside a region of this
/// device. The drivers' safety depends on it, so the crates of drivers keep their implementers private: what they export
/// is a backend, not a `Gpu`.
pub trait Gpu: Debug + Send + Sync {
    /// The device's properties.
    fn properties(&self) -> &Properties;
    /// Whether a region can be an argument of this device: it is this device's own.
    fn owns(&self, region: &Region) -> bool {
        ptr::addr_eq(Arc::as_ptr(&region.gpu), ptr::from_ref(self))
    }
    /// Bytes that can still be allocated.
    fn free_memory(&self) -> Result<u64>;
    /// Memory, aligned to 256 bytes. `bytes > 0`.
    fn allocate(&self, bytes: usize, what: &'static str) -> Result<u64>;
    /// Maps host memory into the device's address space, for kernels to read without a copy until it is freed; the
    /// owner keeps it alive. `None` if the device cannot, and the caller copies.
    fn map_host(&self, bytes: &[u8]) -> Result<Option<u64>> {
        let _ = bytes;
        Ok(None)
    }
    /// Gives memory back once the work that was given before is done.
    fn free(&self, address: u64);
    /// Fills memory with zeros.
    fn zero(&self, address: u64, bytes: usize) -> Result<()>;
    /// Copies from the host. The bytes may be changed after it returns.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<()>;
    /// Fills memory with bytes that several threads make, `piece` bytes at a time. The bytes need not have arrived when it
    /// returns; work that is submitted later finds them.
    fn fill(&self, address: u64, bytes: usize, piece: usize, make: &Make) -> Result<()> {
        upload::fill(address, bytes, piece, make, || Ok(Written::new(self)), drop)
    }
    /// Waits for all work and copies to the host, several pieces at once.
    fn read(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()>;
    /// Starts a copy to the host after all work that was submitted so far: several pieces, address and bytes. Work that
    /// is submitted later does not delay it.
    fn start_read(&self, pieces: &[(u64, usize)]) -> Result<Box<dyn PendingRead>> {
        read_now(self, pieces)
    }
    /// Whether [`Gpu::start_read`] returns before the copy is done.
    fn reads_later(&self) -> bool {
        false
    }
    /// Copies within the device; the ranges do not overlap.
    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()>;
    /// Runs a kernel.
    fn launch(&self, launch: &Launch) -> Result<()>;
    /// Launches as [`Gpu::launch`] does. After the preceding work, three words at `offset` bytes of `grid` (a multiple
    /// of four) contain the number of blocks. `launch.grid` is the maximum.
    fn launch_indirect(&self, launch: &Launch, grid: &Region, offset: usize) -> Result<()> {
        let _ = (grid, offset);
        let device = self.properties().id;
        let what = launch.kernel.entry.to_owned();
        Err(Error::Device { device, what, reason: "the device has no grids that kernels decide on".to_owned() })
    }
    /// Captures what `work` launches into a graph instead of running it. `work` may launch, copy within the device and
    /// fill with zeros, but neither allocate nor copy from or to the host. `None` if the device captures nothing.
    fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>>;
    /// Compiles a unit, so that a later launch of its kernels does not wait. From any thread.
    fn prepare(&self, unit: &Unit) -> Result<()>;
    /// Pinned memory, and copies while work runs; `None` if kernels of this device cannot wait for threads of the host.
    fn host_link(&self) -> Option<&dyn HostLink> {
        None
    }
    /// The library of collectives; `None` if devices of this kind sum through the host.
    fn rank_link(&self) -> Option<&dyn RankLink> {
        None
    }
    /// Whether [`Gpu::prepare`] has nothing to compile: the unit is compiled, or its machine code is on disk.
    fn is_compiled(&self, unit: &Unit) -> bool {
        let _ = unit;
        false
    }
    /// Ends the use of memory of the caller ([`Region::from_raw`]), which this device did not allocate. Does not free it.
    fn release(&self, address: u64) {
        let _ = address;
    }
    /// A notice for people, for instance that compiled kernels cannot be kept.
    fn notice(&self) -> Option<String> {
        None
    }
    /// Where the machine code of kernels came from so far, for people; `None` if the device does not count.
    fn code_report(&self) -> Option<String> {
        None
    }
}

/// The link of a device.
///
/// # Errors
/// [`Error::Device`] if the device has none.
pub fn host_link(gpu: &dyn Gpu) -> Result<&dyn HostLink> {
    let reason = "kernels of this device cannot wait for threads of the host".to_owned();
    let what = "computing experts on the CPU".to_owned();
    gpu.host_link().ok_or_else(|| Error::Device { device: gpu.properties().id, what, reason })
}

/// The alignment of memory that [`Gpu::allocate`] does not return: kernels load 16 bytes at a time.
pub(crate) const ALIGNMENT: usize = 16;

/// A range of memory that a device's kernels can access.
#[derive(Debug)]
pub struct Region {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    pub(crate) owner: Owner,
    /// Whether its memory was freed before it is dropped.
    pub(crate) is_freed: AtomicBool,
}

/// Who owns the memory of a region.
#[derive(Debug)]
pub(crate) enum Owner {
    /// The region, which frees it when it is dropped.
    Region,
    /// The host: mapped memory, which kernels only read.
    Host(#[expect(dead_code, reason = "keeps the memory alive")] SharedBytes),
    /// The caller, who frees it after the last use.
    Caller,
    /// The region, in pinned host memory.
    Pinned,
}

impl Region {
    /// Memory with arbitrary content. A region of no bytes has no address.
    pub fn new(gpu: &Arc<dyn Gpu>, bytes: usize, what: &'static str) -> Result<Self> {
        let address = if bytes == 0 { 0 } else { gpu.allocate(bytes, what)? };
        Ok(Self { gpu: Arc::clone(gpu), address, bytes, owner: Owner::Region, is_freed: AtomicBool::new(false) })
    }

    /// Zeroed memory.
    pub fn zeroed(gpu: &Arc<dyn Gpu>, bytes: usize, what: &'static str) -> Result<Self> {
        let region = Self::new(gpu, bytes, what)?;
        if bytes > 0 {
            gpu.zero(region.address, bytes)?;
        }
        Ok(region)
    }

    /// Zeroed pinned host memory.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has no [`HostLink`].
    pub fn pinned(gpu: &Arc<dyn Gpu>, bytes: usize, what: &'static str) -> Result<Self> {
        let address = host_link(&**gpu)?.allocate_pinned(bytes, what)?;
        let is_freed = AtomicBool::new(false);
        Ok(Self { gpu: Arc::clone(gpu), address, bytes, owner: Owner::Pinned, is_freed })
    }

    /// Host memory: mapped if it is aligned to 16 bytes and the device can read it, else copied.
    pub fn of_host(gpu: &Arc<dyn Gpu>, host: SharedBytes, what: &'static str) -> Result<Self> {
        let bytes = host.as_slice().len();
        let may = bytes > 0 && host.as_slice().as_ptr().addr().is_multiple_of(ALIGNMENT);
        if let Some(address) = if may { gpu.map_host(host.as_slice())? } else { None } {
            return Ok(Self {
                gpu: Arc::clone(gpu),
                address,
                bytes,
                owner: Owner::Host(host),
                is_freed: AtomicBool::new(false),
            });
        }
        let region = Self::new(gpu, bytes, what)?;
        region.write(0, host.as_slice())?;
        Ok(region)
    }

    /// Whether it is mapped host memory.
    pub fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::Host(_))
    }

    /// Where it starts.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device that has it.
    pub fn device(&self) -> DeviceId {
        self.gpu.properties().id
    }

    /// Copies host bytes to `offset`.
    ///
    /// # Errors
    /// [`Error::View`] if they do not fit, [`Error::Range`] for mapped host memory, which is only read.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let address = self.writable("write", offset, bytes.len())?;
        if bytes.is_empty() { Ok(()) } else { self.gpu.write(address, bytes) }
    }

    /// Fills all of it with bytes that several threads make, `piece` bytes at a time: [`Gpu::fill`].
    pub(crate) fn fill(&self, piece: usize, make: &Make) -> Result<()> {
        let address = self.writable("fill", 0, self.bytes)?;
        if self.bytes == 0 { Ok(()) } else { self.gpu.fill(address, self.bytes, piece, make) }
    }

    /// Copies pieces, each to its offset in a region of the same device, while submitted work runs, and returns when all have arrived:
    /// [`HostLink::write_overlapped`].
    ///
    /// # Errors
    /// Those of [`Region::write`], and [`Error::Device`] if the device has no [`HostLink`].
    pub fn write_overlapped(pieces: &[(&Region, usize, &[u8])]) -> Result<()> {
        let Some((first, ..)) = pieces.first() else { return Ok(()) };
        let at = |&(region, offset, bytes): &(&Region, usize, _)| {
            Ok((region.writable("write_overlapped", offset, <[u8]>::len(bytes))?, bytes))
        };
        host_link(&*first.gpu)?.write_overlapped(&pieces.iter().map(at).collect::<Result<Vec<_>>>()?)
    }

    /// The address of a range.
    ///
    /// # Errors
    /// [`Error::View`] if the range is not inside.
    pub fn range(&self, offset: usize, bytes: usize) -> Result<u64> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + offset as u64),
            _ => Err(Error::View { offset, rows: 1, cols: bytes, stride: bytes, len: self.bytes }),
        }
    }

    /// Frees the memory of a region that owns it, once submitted work is done. Kernels may still get its address, and must not
    /// use it. Returns the bytes.
    pub(crate) fn free_early(&self) -> usize {
        if !matches!(self.owner, Owner::Region) || self.bytes == 0 || self.is_freed.swap(true, Ordering::SeqCst) {
            return 0;
        }
        self.gpu.free(self.address);
        self.bytes
    }

    /// The address of a range that is written. It must not be mapped: the host's memory has other readers.
    pub(crate) fn writable(&self, op: &'static str, offset: usize, bytes: usize) -> Result<u64> {
        if self.is_freed.load(Ordering::SeqCst) {
            let found = format!("{bytes} bytes of freed memory");
            return Err(Error::Range { op, what: "target", found, rule: "freed memory cannot be written" });
        }
        if self.is_mapped() {
            let found = format!("{bytes} bytes of mapped host memory");
            let rule = "mapped memory is only read";
            return Err(Error::Range { op, what: "target", found, rule });
        }
        self.range(offset, bytes)
    }
}

impl DeviceMemory for Region {
    fn device(&self) -> DeviceId {
        Region::device(self)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The region that a buffer's memory is, if it is a GPU's.
pub fn region_of<T: Copy>(buffer: &Buffer<T>) -> Option<&Region> {
    region(buffer.device_memory()?)
}

/// The region of a view and where its rows lie, if it is a GPU's.
pub(crate) fn region_of_view<'a, T: Copy>(view: &'a View<T>) -> Option<(&'a Region, RowLayout)> {
    let (memory, layout) = view.device_memory()?;
    Some((region(memory)?, layout))
}

/// The same of a view that is written.
pub fn region_of_view_mut<'a, T: Copy>(view: &'a ViewMut<T>) -> Option<(&'a Region, RowLayout)> {
    let (memory, layout) = view.device_memory()?;
    Some((region(memory)?, layout))
}

fn region(memory: &dyn DeviceMemory) -> Option<&Region> {
    let any: &dyn Any = memory;
    any.downcast_ref()
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.owner {
            _ if self.bytes == 0 || self.is_freed.load(Ordering::SeqCst) => {}
            Owner::Region | Owner::Host(_) => self.gpu.free(self.address),
            Owner::Caller => self.gpu.release(self.address),
            Owner::Pinned => self.gpu.host_link().into_iter().for_each(|link| link.free_pinned(self.address)),
        }
    }
}

/// A translation unit: a file of [`crate::source`] with definitions, of one or several kernels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// The file's name.
    pub file: &'static str,
    /// Macros that are defined before it.
    pub defines: Vec<(&'static str, String)>,
}

impl Unit {
    /// A file with definitions.
    pub fn new(file: &'static str, defines: &[(&'static str, &str)]) -> Self {
        Self { file, defines: defines.iter().map(|&(name, value)| (name, value.to_owned())).collect() }
    }

    /// A file for each format of weights.
    pub fn by_format(file: &'static str) -> impl Iterator<Item = Self> {
        Format::ALL.iter().map(move |format| Self::new(file, &[("FORMAT", format.name())]))
    }

    /// A macro's definition.
    pub fn define(&self, name: &str) -> Option<&str> {
        self.defines.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for Unit {
    /// `gemv.cu FORMAT=Q4_K TOKENS=1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file)?;
        self.defines.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// Which kernel: an entry of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel<'a> {
    /// The file's name.
    pub file: &'static str,
    /// The kernel's name in it.
    pub entry: &'static str,
    /// Macros that are defined before the file.
    pub defines: &'a [(&'static str, &'a str)],
}

impl Kernel<'_> {
    /// A kernel of a file without definitions.
    pub fn plain(file: &'static str, entry: &'static str) -> Self {
        Self { file, entry, defines: &[] }
    }

    /// The unit that has it.
    pub fn unit(&self) -> Unit {
        Unit::new(self.file, self.defines)
    }
}

/// A kernel's use of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes all or parts of it, and does not read what it has not written.
    Write,
    /// Both.
    ReadWrite,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// The address of a part of a region.
    Buffer {
        /// The memory.
        region: &'a Region,
        /// First byte.
        offset: usize,
        /// Bytes that the kernel may touch from there.
        bytes: usize,
        /// How.
        access: Access,
    },
    /// A null pointer: a missing optional buffer.
    Null,
    /// A struct by value.
    Bytes(&'a [u8]),
    /// A matrix of which a kernel copies tiles, by value: for CUDA from compute capability 9.0 on.
    Tiles(TensorMap<'a>),
}

/// A matrix that is read in tiles: `tile_rows` rows of 64 elements of 16 bits, in the order of the swizzle of 128 bytes.
#[derive(Clone, Copy, Debug)]
pub struct TensorMap<'a> {
    /// The memory.
    pub region: &'a Region,
    /// The byte of the first element, a multiple of 16.
    pub offset: usize,
    /// Elements of a row, and rows: both at least 1.
    pub size: [usize; 2],
    /// Bytes from a row to the next, a multiple of 16.
    pub stride: usize,
    /// Rows of a tile.
    pub tile_rows: u32,
}

impl TensorMap<'_> {
    /// Bytes of an element.
    pub const ELEMENT: usize = 2;
    /// Elements of a row of a tile.
    pub const TILE_COLUMNS: usize = 64;

    /// Bytes from the first element to the last one's end.
    pub(crate) fn bytes(&self) -> usize {
        let [columns, rows] = self.size;
        rows.saturating_sub(1).saturating_mul(self.stride).saturating_add(columns * Self::ELEMENT)
    }
}

impl<'a> Arg<'a> {
    /// A view that is read: the address of its first element. The stride of its rows goes into the parameters.
    pub fn read<T: Copy>(view: &'a View<T>) -> Self {
        Self::elements::<T>(region_of_view(view).map(|(region, layout)| (region, layout.span())), Access::Read)
    }

    /// A view that is written.
    pub fn write<T: Copy>(view: &'a ViewMut<T>) -> Self {
        Self::view_mut(view, Access::Write)
    }

    /// A view that is changed.
    pub fn change<T: Copy>(view: &'a ViewMut<T>) -> Self {
        Self::view_mut(view, Access::ReadWrite)
    }

    fn view_mut<T: Copy>(view: &'a ViewMut<T>, access: Access) -> Self {
        let memory = view.device_memory().and_then(|(memory, layout)| Some((region(memory)?, layout.span())));
        Self::elements::<T>(memory, access)
    }

    /// A whole buffer.
    pub fn buffer<T: Copy>(buffer: &'a Buffer<T>, access: Access) -> Self {
        Self::elements::<T>(region_of(buffer).map(|region| (region, 0..buffer.len())), access)
    }

    /// A whole buffer that is read, or none.
    pub fn optional<T: Copy>(buffer: Option<&'a Buffer<T>>) -> Self {
        buffer.map_or(Arg::Null, |buffer| Self::buffer(buffer, Access::Read))
    }

    /// A whole region.
    pub fn region(region: &'a Region, access: Access) -> Self {
        match region.bytes() {
            0 => Arg::Null,
            bytes => Arg::Buffer { region, offset: 0, bytes, access },
        }
    }

    /// Parameters by value.
    pub fn params<P: SharedStruct>(params: &'a P) -> Self {
        Arg::Bytes(bytemuck::bytes_of(params))
    }

    fn elements<T>(part: Option<(&'a Region, std::ops::Range<usize>)>, access: Access) -> Self {
        // The checks have found every buffer on the device; host memory has no address there.
        part.filter(|(_, span)| !span.is_empty()).map_or(Arg::Null, |(region, span)| Arg::Buffer {
            region,
            offset: span.start * size_of::<T>(),
            bytes: span.len() * size_of::<T>(),
            access,
        })
    }
}

/// A kernel with its grid and arguments.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Which kernel.
    pub kernel: Kernel<'a>,
    /// Blocks. Up to 2³¹ − 1, 65,535, 65,535.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// The kernel may start before the one before it has ended; it waits by itself (`dependency_wait`).
    /// A device may ignore it.
    pub overlap: bool,
    /// Arguments, in the kernel's order.
    pub args: &'a [Arg<'a>],
}

impl<'a> Launch<'a> {
    /// A launch without dynamic shared memory that may overlap the one before.
    pub fn new(kernel: Kernel<'a>, grid: [u32; 3], block: u32, args: &'a [Arg<'a>]) -> Self {
        Self { kernel, grid, block, shared: 0, overlap: true, args }
    }
}

//! A device with what operations need next to their arguments: a flag for bad ids, and a workspace.
//!
//! # Bad ids on a GPU
//!
//! Bad ids on a GPU are unknown to the host. If a kernel reads a bad id, it writes zeros or nothing, and raises a flag
//! with the operation, the id and its position. The next copy to the host returns the flag as `Error::Id`. `u32::MAX`
//! is padding and raises no flag.

use crate::device_api::{Access, Arg, Gpu, Launch, Region};
use crate::membership::Membership;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::{Graph, PendingRead};
use gristmill_kernels::tensor::DeviceId;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Words of the flag: code + 1, id, where it stood, what it must be below. See `raise` in `device.h`.
const FLAG_WORDS: usize = 4;

/// Faults that kernels find in ids in device memory: (operation, what). The numbers are those of `device.h`.
pub(crate) const FLAGS: [(&str, &str); 10] = [
    ("embed", "row"),
    ("matmul_rows", "row"),
    ("group_by_expert", "expert"),
    ("attention", "slot"),
    ("attention", "position"),
    ("attention", "block"),
    ("kv_copy", "block"),
    ("runs", "row"),
    ("runs", "state slot"),
    ("gather_columns", "column"),
];

/// The code of the flag if the host did not send the rows of a layer's experts: as in `host_experts.cu`. Then the words are the
/// code, the layer, the number of rows, and the milliseconds until the deadline.
const HOST_EXPERTS: u32 = FLAGS.len() as u32 + 1;

/// A device with what operations need next to their arguments.
#[derive(Debug)]
pub struct Device {
    gpu: Arc<dyn Gpu>,
    flag: Arc<Region>,
    /// Why the host could not compute experts.
    host_failure: Arc<OnceLock<String>>,
    /// For partial results within an operation, the last region for new work. Graphs may name the others.
    workspaces: Mutex<Vec<Arc<Region>>>,
    epoch: AtomicU64,
    membership: Arc<Membership>,
}

/// Alignment of a workspace's slices: kernels access 16 bytes at a time.
const SLICE_ALIGNMENT: usize = 16;

/// A workspace in slices.
#[derive(Debug)]
pub struct Scratch<const N: usize> {
    region: Arc<Region>,
    starts: [usize; N],
    lengths: [usize; N],
}

impl<const N: usize> Scratch<N> {
    /// A slice as an argument; null if it is empty.
    pub fn arg(&self, slice: usize, access: Access) -> Arg<'_> {
        match self.lengths[slice] {
            0 => Arg::Null,
            bytes => Arg::Buffer { region: &self.region, offset: self.starts[slice], bytes, access },
        }
    }

    /// Copies host data to a slice.
    pub fn write<T: bytemuck::NoUninit>(&self, slice: usize, values: &[T]) -> Result<()> {
        self.region.write(self.starts[slice], bytemuck::cast_slice(values))
    }
}

impl Device {
    /// A device, with its flag.
    pub fn new(gpu: Arc<dyn Gpu>) -> Result<Self> {
        let flag = Region::zeroed(&gpu, FLAG_WORDS * size_of::<u32>(), "the device's flag")?.into();
        let (host_failure, workspaces, epoch, membership) = Default::default();
        Ok(Self { gpu, flag, host_failure, workspaces, epoch, membership })
    }

    /// The number of synchronisations so far: points at which all earlier work ends before later work starts. Copies
    /// from and to the host are such points, and the ends of a capture. A kernel may read data that was written in an
    /// earlier epoch before `dependency_wait`.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Copies from the host to the start of a region.
    ///
    /// # Errors
    /// [`Error::View`] if the bytes do not fit, and [`Error::ForeignLayout`] if the region is another device's.
    pub fn write_region(&self, region: &Region, bytes: &[u8]) -> Result<()> {
        self.write_region_at(region, 0, bytes)
    }

    /// Copies from the host to `offset` of a region.
    pub(crate) fn write_region_at(&self, region: &Region, offset: usize, bytes: &[u8]) -> Result<()> {
        self.own("upload", region)?;
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let address = region.writable("upload", offset, bytes.len())?;
        if bytes.is_empty() { Ok(()) } else { self.gpu.write(address, bytes) }
    }

    /// The group of devices that it has joined.
    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Fails unless a region is this device's.
    pub(crate) fn own(&self, op: &'static str, region: &Region) -> Result<()> {
        if self.gpu.owns(region) { Ok(()) } else { Err(Error::ForeignLayout { op, what: "a buffer" }) }
    }

    /// Fails unless the arguments are parts of this device's regions.
    fn own_args(&self, launch: &Launch) -> Result<()> {
        launch.args.iter().try_for_each(|arg| match *arg {
            Arg::Buffer { region, offset, bytes, .. } => {
                self.own(launch.kernel.entry, region)?;
                region.range(offset, bytes).map(|_| ())
            }
            Arg::Tiles(map) => {
                self.own(launch.kernel.entry, map.region)?;
                map.region.range(map.offset, map.bytes()).map(|_| ())
            }
            Arg::Null | Arg::Bytes(_) => Ok(()),
        })
    }

    /// [`Gpu::capture`].
    pub fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let graph = self.gpu.capture(work);
        self.epoch.fetch_add(1, Ordering::Relaxed);
        graph
    }

    /// The device's driver.
    pub fn gpu(&self) -> &Arc<dyn Gpu> {
        &self.gpu
    }

    /// Which device it is.
    pub fn id(&self) -> DeviceId {
        self.gpu.properties().id
    }

    /// Shared memory of a block next to `fixed` bytes that its kernel has: at most what all CUDA devices have in all.
    pub fn shared(&self, fixed: u32) -> u32 {
        self.gpu.properties().shared_bytes.min(48 << 10).saturating_sub(fixed)
    }

    /// [`Gpu::launch`].
    ///
    /// # Errors
    /// [`Error::ForeignLayout`] for a region of another device, [`Error::View`] for an argument outside its region.
    pub fn launch(&self, launch: &Launch) -> Result<()> {
        self.own_args(launch)?;
        self.gpu.launch(launch)
    }

    /// [`Gpu::launch_indirect`], with the errors of [`Device::launch`].
    pub fn launch_indirect(&self, launch: &Launch, grid: &Region, offset: usize) -> Result<()> {
        self.own_args(launch)?;
        self.own(launch.kernel.entry, grid)?;
        grid.range(offset, size_of::<[u32; 3]>())?;
        self.gpu.launch_indirect(launch, grid, offset)
    }

    /// Where the host stores why it could not compute experts, for the error of the next copy to the host.
    pub fn host_failure(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.host_failure)
    }

    /// The flag as a kernel's argument.
    pub fn flag(&self) -> Arg<'_> {
        Arg::region(&self.flag, Access::ReadWrite)
    }

    /// At least `bytes` that no other operation uses while this one runs, with arbitrary content.
    pub(crate) fn workspace(&self, bytes: usize) -> Result<Arc<Region>> {
        let mut regions = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = regions.last().filter(|region| region.bytes() >= bytes) {
            return Ok(Arc::clone(region));
        }
        let region = Arc::new(Region::new(&self.gpu, bytes.next_power_of_two(), "the workspace")?);
        regions.push(Arc::clone(&region));
        Ok(region)
    }

    /// A workspace in slices of this number of bytes.
    pub fn scratch<const N: usize>(&self, lengths: [usize; N]) -> Result<Scratch<N>> {
        let mut end = 0;
        let starts = lengths.map(|length| {
            let start = end;
            end += length.next_multiple_of(SLICE_ALIGNMENT);
            start
        });
        Ok(Scratch { region: self.workspace(end)?, starts, lengths })
    }

    /// Waits for all work, and fails if a kernel has met a bad id since the last time.
    pub fn synchronize(&self) -> Result<()> {
        self.read_region(&self.flag, 0, &mut [])
    }

    /// Waits for all work, copies from `offset` of a region to the host, and fails if a kernel has met a bad id since the
    /// last time.
    ///
    /// # Errors
    /// Also [`Error::View`] if the range is not inside, and [`Error::ForeignLayout`] if the region is another device's.
    pub fn read_region(&self, region: &Region, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.own("download", region)?;
        let address = region.range(offset, bytes.len())?;
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let mut flag = [0_u32; FLAG_WORDS];
        let mut pieces = [(self.flag.address(), bytemuck::cast_slice_mut(&mut flag)), (address, bytes)];
        let used = if pieces[1].1.is_empty() { 1 } else { 2 };
        let wait = self.membership.wait();
        let outcome = self.gpu.read(&mut pieces[..used]);
        drop(wait);
        self.membership.outcome(self.id(), outcome)?;
        check_flag(&self.gpu, &self.flag, &self.host_failure, flag)
    }

    /// Begins to copy memory to the host behind the work that was given so far; the wait for it fails if a kernel of that
    /// work has met a bad id since the last time.
    pub fn start_read_region(&self, region: &Region, offset: usize, bytes: usize) -> Result<Box<dyn PendingRead>> {
        self.own("start_download", region)?;
        let address = region.range(offset, bytes)?;
        let pieces = [(self.flag.address(), self.flag.bytes()), (address, bytes)];
        let pending = self.gpu.start_read(&pieces)?;
        let gpu = Arc::clone(&self.gpu);
        let flag = Arc::clone(&self.flag);
        let (host_failure, membership) = (self.host_failure(), Arc::clone(&self.membership));
        Ok(Box::new(FlaggedRead { pending, gpu, flag, host_failure, membership }))
    }

    /// Copies between regions of the device, each from its offset on. Such a copy is a synchronisation, as are those
    /// from and to the host.
    pub fn copy_region(&self, from: (&Region, usize), to: (&Region, usize), bytes: usize) -> Result<()> {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.copy("copy", from, to, bytes)
    }

    /// The same without a synchronisation.
    pub(crate) fn copy(
        &self,
        op: &'static str,
        from: (&Region, usize),
        to: (&Region, usize),
        bytes: usize,
    ) -> Result<()> {
        self.own(op, from.0)?;
        self.own(op, to.0)?;
        let source = from.0.range(from.1, bytes)?;
        let target = to.0.writable(op, to.1, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        if ptr::eq(from.0, to.0) && from.1.abs_diff(to.1) < bytes {
            let found = format!("{bytes} bytes to {} bytes away", from.1.abs_diff(to.1));
            return Err(Error::Range { op, what: "copy", found, rule: "source and target must not overlap" });
        }
        self.gpu.copy(source, target, bytes)
    }
}

/// Fails if the words of the flag name a bad id or a failure of the host, and clears the flag then.
fn check_flag(
    gpu: &Arc<dyn Gpu>,
    flag: &Region,
    host_failure: &OnceLock<String>,
    words: [u32; FLAG_WORDS],
) -> Result<()> {
    let [code, id, index, limit] = words;
    if code == 0 {
        return Ok(());
    }
    gpu.zero(flag.address(), flag.bytes())?;
    if code == HOST_EXPERTS {
        let device = gpu.properties().id;
        let what = "experts on the CPU".to_owned();
        let late = || {
            format!(
                "the CPU did not return {index} rows within {limit} ms; other programs may use its cores: start again with \
                 fewer threads"
            )
        };
        let reason = host_failure.get().cloned().unwrap_or_else(late);
        return Err(Error::Device { device, what, reason });
    }
    let (op, what) = FLAGS.get(code as usize - 1).copied().unwrap_or(("a kernel", "id"));
    Err(Error::Id { op, what, id, index: index as usize, limit: limit as usize })
}

/// A copy behind one of the flag.
#[derive(Debug)]
struct FlaggedRead {
    pending: Box<dyn PendingRead>,
    gpu: Arc<dyn Gpu>,
    flag: Arc<Region>,
    host_failure: Arc<OnceLock<String>>,
    membership: Arc<Membership>,
}

impl PendingRead for FlaggedRead {
    fn wait(self: Box<Self>) -> Result<Vec<u8>> {
        let wait = self.membership.wait();
        let outcome = self.pending.wait();
        drop(wait);
        let mut bytes = self.membership.outcome(self.gpu.properties().id, outcome)?;
        let rest = bytes.split_off(self.flag.bytes().min(bytes.len()));
        let mut words = [0; FLAG_WORDS];
        words.iter_mut().zip(bytes.chunks_exact(size_of::<u32>())).for_each(|(word, bytes)| {
            *word = bytemuck::pod_read_unaligned(bytes);
        });
        check_flag(&self.gpu, &self.flag, &self.host_failure, words)?;
        Ok(rest)
    }
}

#[cfg(test)]
pub(crate) mod tests;

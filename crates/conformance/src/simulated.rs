//! A simulated GPU of CUDA or of Metal: [`Gpu`] over the simulator, in host memory.

mod ranks;

use crate::sources;
use gpu_sim::{Arg as SimArg, Language, Launch as SimLaunch, Mode, Order, Program, Source};
use gristmill_cuda::{Cuda, Options};
use gristmill_gpu::{Access, Arg, Gpu, HostLink, Launch, Properties, RankLink, Region, TensorMap, Unit};
use gristmill_kernels::ops::Graph;
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::{Backend, Error, Result};
use gristmill_metal::Metal;
use ranks::Exchange;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Alignment of allocations, as by CUDA.
const ALIGNMENT: usize = 256;
/// New memory is filled with this byte, which gives NaNs and huge ids; larger allocations are not filled.
const POISON: u8 = 0xff;
const POISONED: usize = 64 << 20;

/// Threadgroup memory of Metal comes in parts of this number of bytes, and every kernel declares some.
const SHARED_UNIT: u32 = 16;

/// A simulated device.
#[derive(Debug)]
pub struct Simulator {
    properties: Properties,
    language: Language,
    order: Order,
    mode: Mode,
    /// Sources that replace the checkout's.
    instead: Vec<(&'static str, String)>,
    /// Sizes of the allocations.
    memory: Mutex<HashMap<u64, usize>>,
    /// Sizes of the host memory that is mapped.
    mapped: Mutex<HashMap<u64, usize>>,
    programs: RwLock<HashMap<Unit, Arc<Program>>>,
    /// Allocations that launches have written since all work had to end.
    written: Mutex<HashSet<u64>>,
    queue: Arc<Queue>,
    /// Why it does not sum with other devices.
    refuses_ranks: Mutex<Option<String>>,
    /// Whether its sums are wrong.
    sums_wrongly: AtomicBool,
    /// Sums with other devices, and copies from and to the host, so far.
    sums: Arc<AtomicUsize>,
    host_copies: AtomicUsize,
    /// When copies that overlap launches arrive.
    copies: Mutex<Copies>,
    /// Bytes that can be allocated together.
    limit: AtomicU64,
    /// Sizes of the host memory that is pinned, unless the system refuses.
    pinned: Mutex<HashMap<u64, usize>>,
    refuses_pins: AtomicBool,
}

/// The work of a device.
#[derive(Debug)]
struct Queue {
    device: DeviceId,
    /// The graph that is being captured.
    captured: Mutex<Option<Vec<Work>>>,
    /// Held while work runs.
    running: Arc<Mutex<()>>,
}

/// When a copy that overlaps launches arrives. Until then, its target is poisoned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// At once.
    #[default]
    Soon,
    /// Up to 4 ms later, by a seed.
    Late(u64),
    /// Never, although the device reports it: a bug of a driver that does not wait.
    Lost,
    /// Never: the device fails.
    Refused,
}

/// A launch, or a copy, that can be done again.
#[derive(Clone, Debug)]
enum Work {
    Launch {
        program: Arc<Program>,
        entry: &'static str,
        grid: [u32; 3],
        block: u32,
        shared: u32,
        args: Vec<OwnedArg>,
        order: Order,
        overlaps: bool,
    },
    Zero {
        address: u64,
        bytes: usize,
    },
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
    Exchange(Exchange),
}

#[derive(Clone, Debug)]
enum OwnedArg {
    Buffer { address: u64, bytes: usize, access: gpu_sim::Access, settled: bool },
    Null,
    Bytes(Vec<u8>),
    Tiles { address: u64, size: [usize; 2], stride: usize, tile: [usize; 2] },
}

/// Where compiled sources are kept between runs.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/gpu-sim")
}

/// The same for sources that this process replaces; the caller removes the folder.
pub fn cache_of_changed() -> PathBuf {
    cache().join(format!("changed-{}", std::process::id()))
}

/// The order that one of the suite's numbers of threads stands for.
pub fn order(threads: usize) -> Order {
    match threads {
        1 => Order::Ascending,
        2 => Order::Descending,
        seed => Order::Shuffled(seed as u64),
    }
}

impl Simulator {
    /// A device like an H100, whose threads run in this order.
    pub fn new(order: Order, mode: Mode) -> Arc<Self> {
        Self::with(Language::Cuda, order, mode, Vec::new())
    }

    /// A device like an H100 or an M1, with the checkout's sources of these names replaced.
    pub fn with(language: Language, order: Order, mode: Mode, instead: Vec<(&'static str, String)>) -> Arc<Self> {
        static DEVICES: AtomicU32 = AtomicU32::new(DeviceId::SIMULATED);
        let number = DEVICES.fetch_add(1, Ordering::Relaxed);
        let name = format!("simulated, {order:?}");
        let properties = match language {
            Language::Cuda => Properties {
                id: DeviceId::Cuda(number),
                name,
                architecture: 90,
                multiprocessors: 4,
                shared_bytes: gpu_sim::SHARED_LIMIT,
                memory: 80 << 30,
            },
            Language::Metal => Properties {
                id: DeviceId::Metal(number),
                name,
                architecture: 7,
                multiprocessors: 0,
                shared_bytes: gpu_sim::THREADGROUP_LIMIT,
                memory: 64 << 30,
            },
        };
        let (memory, mapped, written, programs, captured) = Default::default();
        let (copies, pinned, refuses_pins, refuses_ranks, sums, host_copies, running) = Default::default();
        let sums_wrongly = AtomicBool::new(false);
        let queue = Arc::new(Queue { device: properties.id, captured, running });
        let limit = AtomicU64::new(u64::MAX);
        Arc::new(Self {
            properties,
            language,
            order,
            mode,
            instead,
            memory,
            mapped,
            written,
            programs,
            queue,
            refuses_ranks,
            sums_wrongly,
            sums,
            host_copies,
            copies,
            limit,
            pinned,
            refuses_pins,
        })
    }

    /// A CUDA device of this compute capability (75 for 7.5), with its shared memory of a block (CUDA C++ Programming Guide,
    /// technical specifications).
    pub fn of_capability(capability: u32, order: Order, mode: Mode) -> Arc<Self> {
        let kibibytes = match capability {
            ..=75 => 64,
            80 | 87 => 163,
            81..=89 | 120.. => 99,
            _ => 227,
        };
        let mut device = Self::new(order, mode);
        Arc::get_mut(&mut device).into_iter().for_each(|own| {
            (own.properties.architecture, own.properties.shared_bytes) = (capability, kibibytes << 10);
        });
        device
    }

    /// A device like an H100 with this number of bytes of memory.
    pub fn with_memory(bytes: u64) -> Arc<Self> {
        let mut device = Self::new(Order::Ascending, Mode::Fast);
        Arc::get_mut(&mut device).into_iter().for_each(|own| own.properties.memory = bytes);
        device
    }

    /// Sets when copies that overlap launches arrive.
    pub fn set_copies(&self, copies: Copies) {
        *self.copies.lock().unwrap_or_else(PoisonError::into_inner) = copies;
    }

    /// Sets how many bytes can be allocated together from now on.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Sets whether the system refuses to pin memory.
    pub fn refuse_pins(&self, refuse: bool) {
        self.refuses_pins.store(refuse, Ordering::Relaxed);
    }

    /// Sets why it does not sum with other devices: as where the library of collectives is missing.
    pub fn refuse_ranks(&self, reason: &str) {
        *self.refuses_ranks.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }

    /// Sets that its sums are wrong, in groups that it joins from now on: as of a link between devices that is broken.
    pub fn sum_wrongly(&self) {
        self.sums_wrongly.store(true, Ordering::Relaxed);
    }

    /// Sums with other devices so far.
    pub fn sums(&self) -> usize {
        self.sums.load(Ordering::Relaxed)
    }

    /// Copies from and to the host so far.
    pub fn host_copies(&self) -> usize {
        self.host_copies.load(Ordering::Relaxed)
    }

    /// Bytes of the caller's memory that are pinned now.
    pub fn pinned(&self) -> u64 {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).values().map(|&bytes| bytes as u64).sum()
    }

    /// A backend on such a device. The suite's numbers of threads stand for orders: results must not depend on them.
    pub fn cuda(threads: usize, mode: Mode) -> Result<Backend> {
        Cuda::backend(Self::new(order(threads), mode), Options::default())
    }

    /// The same for Metal.
    pub fn metal(threads: usize, mode: Mode) -> Result<Backend> {
        let gpu = Self::with(Language::Metal, order(threads), mode, Vec::new());
        Metal::backend(gpu, gristmill_metal::Options::default())
    }

    /// Bytes that are allocated now.
    pub fn taken(&self) -> u64 {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).values().map(|&bytes| bytes as u64).sum()
    }

    /// Bytes of host memory that are mapped now.
    pub fn mapped(&self) -> u64 {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner).values().map(|&bytes| bytes as u64).sum()
    }

    /// Units that were compiled, or found compiled.
    pub fn compiled(&self) -> usize {
        self.programs.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The files that their sources consist of.
    pub fn files(&self) -> BTreeSet<&'static str> {
        let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
        let expanded = programs.keys().filter_map(|unit| sources::expand(unit, self.language, &self.instead));
        let names = |source: String| {
            let known = sources::all().iter().map(|(name, _)| *name);
            known.filter(move |name| source.contains(&format!("#line 1 \"{name}\""))).collect::<Vec<_>>()
        };
        expanded.flat_map(names).collect()
    }

    /// Source names and lines at which threads have waited, in checked mode.
    pub fn passed(&self) -> BTreeSet<(String, u32)> {
        let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
        programs.values().flat_map(|program| program.passed()).collect()
    }

    fn error(&self, what: &str, reason: impl ToString) -> Error {
        self.queue.error(what, reason)
    }

    fn program(&self, unit: &Unit) -> Result<Arc<Program>> {
        if let Some(program) = self.programs.read().unwrap_or_else(PoisonError::into_inner).get(unit) {
            return Ok(Arc::clone(program));
        }
        let Unit { file, defines } = unit;
        let source = sources::expand(unit, self.language, &self.instead);
        let source = source.ok_or_else(|| self.error(file, "there is no such source, or none of its format"))?;
        let defines: Vec<(&str, &str)> = defines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (language, mode) = (self.language, self.mode);
        let source = Source { language, name: file, text: &source, defines: &defines, mode, ..Source::default() };
        let cache = if self.instead.is_empty() { cache() } else { cache_of_changed() };
        let program = Program::compile(&source, &cache).map_err(|error| self.error(file, error))?;
        let program = Arc::new(program);
        self.programs.write().unwrap_or_else(PoisonError::into_inner).insert(unit.clone(), Arc::clone(&program));
        Ok(program)
    }

    fn written(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn captured(&self) -> MutexGuard<'_, Option<Vec<Work>>> {
        self.queue.captured()
    }

    fn run(&self, work: Work) -> Result<()> {
        self.queue.run(work)
    }
}

impl Queue {
    fn error(&self, what: &str, reason: impl ToString) -> Error {
        Error::Device { device: self.device, what: what.to_owned(), reason: reason.to_string() }
    }

    fn captured(&self) -> MutexGuard<'_, Option<Vec<Work>>> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs work, or keeps it while a graph is captured.
    fn run(&self, work: Work) -> Result<()> {
        if let Some(captured) = &mut *self.captured() {
            captured.push(work);
            return Ok(());
        }
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        work.run().map_err(|reason| self.error("a kernel", reason))
    }
}

impl Work {
    fn run(&self) -> std::result::Result<(), String> {
        match self {
            // SAFETY: a region's own memory, which lives as long as its buffers.
            Work::Zero { address, bytes } => unsafe { pointer(*address).write_bytes(0, *bytes) },
            // SAFETY: as above; the buffers do not overlap.
            Work::Copy { from, to, bytes } => unsafe { pointer(*from).copy_to_nonoverlapping(pointer(*to), *bytes) },
            Work::Exchange(exchange) => exchange.run(),
            Work::Launch { program, entry, grid, block, shared, args, order, overlaps } => {
                let args: Vec<SimArg> = args.iter().map(OwnedArg::borrow).collect();
                let grid = *grid;
                let block = [*block, 1, 1];
                let shared = *shared;
                let order = *order;
                let overlaps = *overlaps;
                let launch = SimLaunch { kernel: entry, grid, block, shared, args: &args, order, overlaps };
                // SAFETY: buffers are parts of regions, and the operations' borrows keep others away from them.
                unsafe { program.launch(&launch) }.map_err(|error| format!("{entry}: {error}"))?;
            }
        }
        Ok(())
    }
}

impl OwnedArg {
    fn borrow(&self) -> SimArg<'_> {
        match self {
            OwnedArg::Buffer { address, bytes, access, settled } => {
                SimArg::Buffer { address: pointer(*address), bytes: *bytes, access: *access, settled: *settled }
            }
            OwnedArg::Null => SimArg::Null,
            OwnedArg::Bytes(bytes) => SimArg::Bytes(bytes),
            OwnedArg::Tiles { address, size, stride, tile } => SimArg::TensorMap(gpu_sim::TensorMap {
                address: pointer(*address),
                element: TensorMap::ELEMENT,
                size: *size,
                stride: *stride,
                tile: *tile,
                swizzle: gpu_sim::Swizzle::Bytes128,
            }),
        }
    }
}

fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, ALIGNMENT).ok()
}

impl Gpu for Simulator {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_memory(&self) -> Result<u64> {
        Ok(self.properties.memory)
    }

    fn allocate(&self, bytes: usize, what: &'static str) -> Result<u64> {
        let refused = Error::OutOfMemory { what, bytes };
        let Some(layout) = layout(bytes).filter(|layout| layout.size() as u64 <= self.properties.memory) else {
            return Err(refused);
        };
        if self.taken() + bytes as u64 > self.limit.load(Ordering::Relaxed) {
            return Err(refused);
        }
        // SAFETY: the size is not 0, as `Gpu` says.
        let memory = unsafe { if bytes > POISONED { alloc_zeroed(layout) } else { alloc(layout) } };
        if memory.is_null() {
            return Err(refused);
        }
        if bytes <= POISONED {
            // SAFETY: allocated above with this size.
            unsafe { memory.write_bytes(POISON, bytes) };
        }
        let address = memory.expose_provenance() as u64;
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes);
        self.written().remove(&address);
        Ok(address)
    }

    /// A Metal device reads host memory.
    fn map_host(&self, bytes: &[u8]) -> Result<Option<u64>> {
        if self.language != Language::Metal {
            return Ok(None);
        }
        let address = bytes.as_ptr().expose_provenance() as u64;
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes.len());
        Ok(Some(address))
    }

    /// Mapped memory belongs to the host. As CUDA's driver does, this waits for the work that runs.
    fn free(&self, address: u64) {
        let _running = self.queue.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        let bytes = self.memory.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        if let Some(layout) = bytes.and_then(layout) {
            // SAFETY: allocated with this layout, and freed once, by the region that owns it. A kernel that still reads it may
            // find the poison.
            unsafe {
                if layout.size() <= POISONED {
                    pointer(address).write_bytes(POISON, layout.size());
                }
                dealloc(pointer(address), layout);
            }
        }
    }

    /// A copy is complete when it is requested. The engine still submits steps asynchronously.
    fn reads_later(&self) -> bool {
        true
    }

    fn zero(&self, address: u64, bytes: usize) -> Result<()> {
        self.run(Work::Zero { address, bytes })
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if self.captured().is_some() {
            return Err(self.error("capturing a graph", "a copy from the host cannot be captured"));
        }
        self.written().clear();
        self.host_copies.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a region's own memory; the region has seen that the bytes fit.
        unsafe { pointer(address).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn read(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        if self.captured().is_some() {
            return Err(self.error("capturing a graph", "a copy to the host cannot be captured"));
        }
        self.written().clear();
        self.host_copies.fetch_add(1, Ordering::Relaxed);
        for (address, bytes) in pieces.iter_mut().filter(|(_, bytes)| !bytes.is_empty()) {
            // SAFETY: a part of a region.
            unsafe { pointer(*address).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        }
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.run(Work::Copy { from, to, bytes })
    }

    fn launch(&self, launch: &Launch) -> Result<()> {
        let program = self.program(&launch.kernel.unit())?;
        let mut written = self.written();
        if !launch.overlap {
            // All earlier work ends before it.
            written.clear();
        }
        let args: Vec<OwnedArg> = launch
            .args
            .iter()
            .map(|arg| match *arg {
                Arg::Buffer { region, offset, bytes, access } => OwnedArg::Buffer {
                    address: region.address() + offset as u64,
                    bytes,
                    access: match access {
                        Access::Read => gpu_sim::Access::Read,
                        Access::Write => gpu_sim::Access::Write,
                        Access::ReadWrite => gpu_sim::Access::ReadWrite,
                    },
                    settled: !written.contains(&region.address()),
                },
                Arg::Null => OwnedArg::Null,
                Arg::Bytes(bytes) => OwnedArg::Bytes(bytes.to_vec()),
                Arg::Tiles(TensorMap { region, offset, size, stride, tile_rows }) => OwnedArg::Tiles {
                    address: region.address() + offset as u64,
                    size,
                    stride,
                    tile: [TensorMap::TILE_COLUMNS, tile_rows as usize],
                },
            })
            .collect();
        written.extend(launch.args.iter().filter_map(|arg| match arg {
            Arg::Buffer { region, access: Access::Write | Access::ReadWrite, .. } => Some(region.address()),
            _ => None,
        }));
        drop(written);
        let Launch { kernel, grid, block, shared, overlap, .. } = *launch;
        let entry = kernel.entry;
        let order = self.order;
        let (shared, overlaps) = match self.language {
            Language::Cuda => (shared, overlap),
            Language::Metal => (shared.max(1).next_multiple_of(SHARED_UNIT), false),
        };
        self.run(Work::Launch { program, entry, grid, block, shared, args, order, overlaps })
    }

    fn launch_indirect(&self, launch: &Launch, grid: &Region, offset: usize) -> Result<()> {
        let mut words = [0; 3 * size_of::<u32>()];
        self.read(&mut [(grid.address() + offset as u64, &mut words)])?;
        let found: [u32; 3] = std::array::from_fn(|i| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| words[4 * i + byte])));
        if found.iter().zip(launch.grid).any(|(&found, most)| found > most) {
            let reason = format!("a grid of {found:?} blocks, where there are {:?} at most", launch.grid);
            return Err(self.error(launch.kernel.entry, reason));
        }
        if found.contains(&0) { Ok(()) } else { self.launch(&Launch { grid: found, ..*launch }) }
    }

    fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
        if self.language == Language::Metal {
            return Ok(None);
        }
        self.written().clear();
        *self.captured() = Some(Vec::new());
        let outcome = work();
        self.written().clear();
        let captured = self.captured().take().unwrap_or_default();
        outcome?;
        let running = Arc::clone(&self.queue.running);
        Ok(Some(Box::new(Captured { device: self.properties.id, work: captured, running })))
    }

    fn prepare(&self, unit: &Unit) -> Result<()> {
        self.program(unit).map(|_| ())
    }

    /// As of CUDA.
    fn rank_link(&self) -> Option<&dyn RankLink> {
        if self.language == Language::Cuda { Some(self) } else { None }
    }

    /// Only CUDA's kernels wait for the host.
    fn host_link(&self) -> Option<&dyn HostLink> {
        if self.language == Language::Cuda { Some(self) } else { None }
    }
}

impl Copies {
    /// When the next copy arrives.
    fn next(copies: &Mutex<Self>) -> Self {
        let mut copies = copies.lock().unwrap_or_else(PoisonError::into_inner);
        let found = *copies;
        if let Copies::Late(seed) = &mut *copies {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        found
    }

    /// Waits for a late copy.
    fn delay(self) {
        if let Copies::Late(seed) = self {
            std::thread::sleep(std::time::Duration::from_micros((seed >> 33) % 4000));
        }
    }
}

impl HostLink for Simulator {
    fn allocate_pinned(&self, bytes: usize, what: &'static str) -> Result<u64> {
        if self.refuses_pins.load(Ordering::Relaxed) {
            return Err(self.error(&format!("pinning {bytes} bytes of host memory for {what}"), "a planned refusal"));
        }
        let address = self.allocate(bytes, what)?;
        // SAFETY: just allocated with this size.
        unsafe { pointer(address).write_bytes(0, bytes) };
        Ok(address)
    }

    fn free_pinned(&self, address: u64) {
        self.free(address);
    }

    fn pin(&self, bytes: &[u8]) -> Result<bool> {
        let pins = !self.refuses_pins.load(Ordering::Relaxed);
        if pins {
            let address = bytes.as_ptr().expose_provenance() as u64;
            self.pinned.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes.len());
        }
        Ok(pins)
    }

    fn unpin(&self, address: u64) {
        let found = self.pinned.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        assert!(found.is_some(), "only pinned memory is unpinned");
    }

    fn write_overlapped(&self, pieces: &[(u64, &[u8])]) -> Result<()> {
        let copies = Copies::next(&self.copies);
        for &(address, bytes) in pieces {
            // SAFETY: a region's own memory; the region has seen that the bytes fit. No launch uses it.
            unsafe { pointer(address).write_bytes(POISON, bytes.len()) };
        }
        match copies {
            Copies::Soon | Copies::Late(_) => copies.delay(),
            Copies::Lost => return Ok(()),
            Copies::Refused => return Err(self.error("copying while kernels run", "a planned failure")),
        }
        for &(address, bytes) in pieces {
            // SAFETY: as above.
            unsafe { pointer(address).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Captured {
    device: DeviceId,
    work: Vec<Work>,
    running: Arc<Mutex<()>>,
}

impl Graph for Captured {
    fn replay(&self) -> Result<()> {
        let failed = |reason| Error::Device { device: self.device, what: "replaying a graph".to_owned(), reason };
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.work.iter().try_for_each(|work| work.run().map_err(failed))
    }
}

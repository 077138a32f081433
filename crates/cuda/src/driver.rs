//! The CUDA driver as a [`Gpu`].
//!
//! cudarc's bindings panic if the driver library or one of its functions is missing. Therefore [`version`] looks for
//! the library and rejects drivers older than CUDA 12.0, the version of the bindings. All other functions call
//! [`version`] first. `driver/` contains the context with its stream, pinned memory for copies, graphs, and memory and streams of
//! other libraries.
//!
//! # One order of work
//!
//! All work of a device goes into one stream with one workspace. Runners on several threads lock `Backend::exclusive`
//! for one step each.
//!
//! # Overlapping launches
//!
//! See programmatic dependent launch. A kernel can start before its predecessor ends, so that its weights are loaded
//! early. *Every block of an overlapping launch waits (`dependency_wait`) before any write, and before it reads data
//! written since the last synchronisation. Inputs are not `__restrict__`, because the compiler would then read them
//! through a cache that is not coherent with the predecessor's writes. The simulator cannot show this error.*

#![allow(unsafe_code)]

mod context;
mod copy_stream;
mod graph;
mod interop;
mod pages;
mod pieces;
mod ranks;
mod staging;
mod tiles;

use super::machine_code::{MachineCode, Origin};
use context::{Context, check, error};
use copy_stream::CopyStreams;
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute, CUresult};
use graph::CudaGraph;
use gristmill_gpu::upload::{self, Make};
use gristmill_gpu::{Arg, Gpu, HostLink, Kernel, Launch, Properties, RankLink, Unit, read_now};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::{Graph, PendingRead};
use gristmill_kernels::tensor::DeviceId;
use pages::PAGE;
use pieces::Pieces;
use staging::{Landings, Uploads};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::fmt::Debug;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The oldest supported driver, in the driver's encoding of its CUDA version: 1,000 · major + 10 · minor.
const OLDEST_DRIVER: i32 = 12_000;
/// The lowest compute capability that the kernels are compiled for.
const OLDEST_CAPABILITY: u32 = 75;
/// Maximum number of kernel arguments.
const MOST_ARGUMENTS: usize = 24;

/// A device of NVIDIA's driver. Only [`crate::CudaDevice`] creates one, and it is private to this crate.
/// [`gristmill_gpu::Device`] checks its addresses and launches.
pub(crate) struct Driver {
    properties: Properties,
    code: MachineCode,
    shared: Arc<Context>,
    /// Compiled units and their kernels; loaded modules are never unloaded.
    modules: RwLock<HashMap<Unit, Module>>,
    functions: RwLock<HashMap<(Unit, &'static str), Function>>,
    uploads: Mutex<Uploads>,
    landings: Arc<Landings>,
    copy_streams: CopyStreams,
    /// Pinned memory for weights.
    pieces: Pieces,
    /// Free memory when the device was opened, and the most that may be used of it.
    free_at_open: u64,
    limit: AtomicU64,
}

#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

#[derive(Clone, Copy)]
struct Function(sys::CUfunction);

// SAFETY: the driver's handles may be used from any thread, see `Context`; these are never given back.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Driver({:?})", self.properties)
    }
}

/// The CUDA version of the installed driver: major, minor. `None` if there is no driver.
///
/// # Errors
/// [`Error::Device`] if the driver is too old.
pub fn version() -> Result<Option<(u32, u32)>> {
    let id = DeviceId::Cuda(0);
    // SAFETY: opening NVIDIA's library has no requirements.
    if !unsafe { sys::is_culib_present() } {
        return Ok(None);
    }
    let mut version = 0;
    // SAFETY: the place of the result lives through the call. This function is in every driver.
    check(id, "asking for the driver's version", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    let major = version / 1000;
    let minor = version % 1000 / 10;
    if version < OLDEST_DRIVER {
        let reason = format!("it is for CUDA {major}.{minor}; install one for CUDA 12.0 or newer");
        return Err(error(id, "the driver is too old", reason));
    }
    Ok(Some((major as u32, minor as u32)))
}

/// Number of the driver's devices: 0 if there is no driver.
///
/// # Errors
/// [`Error::Device`] if the driver cannot be used.
pub fn count() -> Result<u32> {
    if version()?.is_none() {
        return Ok(0);
    }
    let id = DeviceId::Cuda(0);
    let mut devices = 0;
    // SAFETY: the driver is there, and new enough to have all functions.
    let code = unsafe { sys::cuInit(0) };
    if code == CUresult::CUDA_ERROR_NO_DEVICE {
        return Ok(0);
    }
    check(id, "starting the driver", code)?;
    // SAFETY: as above; the place of the number lives through the call.
    check(id, "counting devices", unsafe { sys::cuDeviceGetCount(&mut devices) })?;
    Ok(u32::try_from(devices).unwrap_or(0))
}

/// Properties of a device by index, also of an unsupported device.
///
/// # Errors
/// [`Error::Device`] if there is no driver or no such device.
pub fn properties(number: u32) -> Result<Properties> {
    find(number).map(|(_, properties)| properties)
}

fn find(number: u32) -> Result<(sys::CUdevice, Properties)> {
    let id = DeviceId::Cuda(number);
    let devices = count()?;
    if number >= devices {
        let reason = match devices {
            0 if version()?.is_none() => "there is no NVIDIA driver here; the device `cpu` is everywhere".to_owned(),
            0 => "the NVIDIA driver shows this process no device: look at CUDA_VISIBLE_DEVICES, and at `nvidia-smi`; \
                  the device `cpu` is everywhere"
                .to_owned(),
            _ => format!("there are {devices}, numbered from 0"),
        };
        return Err(error(id, "no such device", reason));
    }
    let mut device = 0;
    // SAFETY: the driver has been started and has this device.
    check(id, "opening it", unsafe { sys::cuDeviceGet(&mut device, number as i32) })?;
    let attribute = |attribute: Attribute| {
        let mut value = 0;
        // SAFETY: the place of the value lives through the call.
        check(id, "asking for its properties", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let mut name = [0; 256];
    let mut memory = 0;
    // SAFETY: the buffer has as many characters as its length says; the pointer lives through the call.
    unsafe {
        check(id, "asking for its name", sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device))?;
        check(id, "asking for its memory", sys::cuDeviceTotalMem_v2(&mut memory, device))?;
    }
    let name: Vec<u8> = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    let properties = Properties {
        id,
        name: String::from_utf8_lossy(&name).into_owned(),
        architecture: 10 * attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        memory: memory as u64,
    };
    Ok((device, properties))
}

/// Bytes that can be allocated on the device whose context is current in this thread.
fn free_memory(id: DeviceId) -> Result<u64> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the places of the numbers live through the call.
    check(id, "asking for free memory", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
    Ok(free as u64)
}

impl Driver {
    /// See [`crate::CudaDevice::limit_memory`].
    pub(crate) fn limit_memory(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Opens a device by index, with folders of kernels that were compiled ahead.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no driver, no such device, neither NVRTC nor a kernel that was compiled ahead, or if the
    /// driver or device is too old.
    pub(crate) fn open(number: u32, ahead: &[PathBuf]) -> Result<Arc<Self>> {
        let (device, properties) = find(number)?;
        let (id, architecture) = (properties.id, properties.architecture);
        if architecture < OLDEST_CAPABILITY {
            let major = architecture / 10;
            let minor = architecture % 10;
            let reason =
                format!("{} has compute capability {major}.{minor}; 7.5 is needed; use the CPU", properties.name);
            return Err(error(id, "the device is too old", reason));
        }
        let code = MachineCode::new(architecture, ahead).map_err(|reason| error(id, "compiling kernels", reason))?;
        let shared = Arc::new(Context::new(id, device)?);
        let uploads = Mutex::new(Uploads::new(&shared)?);
        let landings = Arc::default();
        let copy_streams = CopyStreams::new(&shared);
        let (modules, functions) = Default::default();
        let free_at_open = free_memory(id)?;
        Ok(Arc::new(Self {
            properties,
            code,
            shared,
            modules,
            functions,
            uploads,
            landings,
            copy_streams,
            pieces: Pieces::default(),
            free_at_open,
            limit: AtomicU64::new(u64::MAX),
        }))
    }

    /// The loaded machine code of a unit.
    fn module(&self, unit: &Unit) -> Result<Module> {
        if let Some(&module) = self.modules.read().unwrap_or_else(PoisonError::into_inner).get(unit) {
            return Ok(module);
        }
        let id = self.properties.id;
        let failed = |reason| error(id, &unit.to_string(), reason);
        let (cubin, origin) = self.code.of(unit).map_err(failed)?;
        let module = match (self.load(unit, &cubin), origin) {
            (Err(refusal), Origin::Ahead) => {
                self.load(unit, &self.code.compile_instead(unit, &refusal).map_err(failed)?)?
            }
            (loaded, _) => loaded?,
        };
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        Ok(*modules.entry(unit.clone()).or_insert(module))
    }

    fn load(&self, unit: &Unit, cubin: &[u8]) -> Result<Module> {
        self.shared.enter()?;
        let mut module = ptr::null_mut();
        // SAFETY: the machine code is NVRTC's or has its hash; the module is never unloaded.
        let code = unsafe { sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()) };
        check(self.properties.id, &unit.to_string(), code).map(|()| Module(module))
    }

    fn function(&self, kernel: &Kernel) -> Result<Function> {
        let key = (kernel.unit(), kernel.entry);
        if let Some(&function) = self.functions.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(function);
        }
        let id = self.properties.id;
        let module = self.module(&key.0)?;
        let what = || format!("kernel {} of {}", kernel.entry, key.0);
        let entry = CString::new(kernel.entry).map_err(|_| error(id, &what(), "a name with a zero byte"))?;
        self.shared.enter()?;
        let mut function = ptr::null_mut();
        let mut fixed = 0;
        let asked = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the module stays loaded, and with it the function.
        unsafe {
            check(id, &what(), sys::cuModuleGetFunction(&mut function, module.0, entry.as_ptr()))?;
            check(id, &what(), sys::cuFuncGetAttribute(&mut fixed, asked, function))?;
            let room = self.properties.shared_bytes as i32 - fixed;
            check(id, &what(), sys::cuFuncSetAttribute(function, most, room.max(0)))?;
        }
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        Ok(*functions.entry(key).or_insert(Function(function)))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Pinned memory must not be freed during a copy. A failure here has no caller to report to.
        let _ = self.shared.enter().and_then(|()| self.shared.wait());
    }
}

impl Gpu for Driver {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_memory(&self) -> Result<u64> {
        self.shared.enter()?;
        let free = free_memory(self.properties.id)?;
        let used = self.free_at_open.saturating_sub(free);
        Ok(free.min(self.limit.load(Ordering::Relaxed).saturating_sub(used)))
    }

    fn allocate(&self, bytes: usize, what: &'static str) -> Result<u64> {
        self.shared.enter()?;
        let mut address = 0;
        // SAFETY: the address's place lives through the call.
        match unsafe { sys::cuMemAlloc_v2(&mut address, bytes) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::OutOfMemory { what, bytes }),
            code => check(self.properties.id, "allocating memory", code).map(|()| address),
        }
    }

    fn free(&self, address: u64) {
        // SAFETY: a `Region` frees what it allocated, once; only it has this driver (`crate::CudaDevice`). The driver
        // waits for work that uses the memory. A failure means that the device is lost, which the next operation
        // reports.
        unsafe {
            if self.shared.enter().is_ok() {
                sys::cuMemFree_v2(address);
            }
        }
    }

    fn zero(&self, address: u64, bytes: usize) -> Result<()> {
        self.shared.enter()?;
        // SAFETY: a `Region` zeroes its own memory, and `Device` its flag.
        let code = unsafe { sys::cuMemsetD8Async(address, 0, bytes, self.shared.stream) };
        check(self.properties.id, "zeroing memory", code)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.shared.enter()?;
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner).write(address, bytes)
    }

    fn fill(&self, address: u64, bytes: usize, piece: usize, make: &Make) -> Result<()> {
        let take = || self.pieces.take(&self.shared);
        let give_back = |piece| self.pieces.give_back(piece);
        upload::fill(address, bytes, piece, make, take, give_back)
    }

    fn read(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        let places: Vec<(u64, usize)> = pieces.iter().map(|(address, bytes)| (*address, bytes.len())).collect();
        if places.iter().map(|(_, bytes)| bytes).sum::<usize>() <= PAGE {
            let found = self.start_read(&places)?.wait()?;
            let mut rest = &found[..];
            for (_, bytes) in pieces {
                let (own, behind) = rest.split_at(bytes.len());
                bytes.copy_from_slice(own);
                rest = behind;
            }
            return Ok(());
        }
        self.shared.enter()?;
        for (address, bytes) in pieces.iter_mut().filter(|(_, bytes)| !bytes.is_empty()) {
            let to = bytes.as_mut_ptr().cast::<c_void>();
            // SAFETY: the target holds the bytes and lives until the wait below; `Device` has
            // checked that the source is inside a region of this driver.
            let code = unsafe { sys::cuMemcpyDtoHAsync_v2(to, *address, bytes.len(), self.shared.stream) };
            check(self.properties.id, "copying from it", code)?;
        }
        self.shared.wait()
    }

    fn start_read(&self, pieces: &[(u64, usize)]) -> Result<Box<dyn PendingRead>> {
        if pieces.iter().map(|(_, bytes)| bytes).sum::<usize>() > PAGE {
            return read_now(self, pieces);
        }
        self.shared.enter()?;
        Ok(Box::new(self.landings.read(&self.shared, pieces)?))
    }

    fn reads_later(&self) -> bool {
        true
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.shared.enter()?;
        // SAFETY: `Device::copy` has checked that both ranges are inside regions of this driver, and do not overlap.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.shared.stream) };
        check(self.properties.id, "copying within it", code)
    }

    fn launch(&self, launch: &Launch) -> Result<()> {
        let function = self.function(&launch.kernel)?;
        self.shared.enter()?;
        let tiles = launch.args.iter().filter_map(|arg| match arg {
            Arg::Tiles(map) => Some(tiles::encode(self.properties.id, map)),
            _ => None,
        });
        let tiles: Vec<_> = tiles.collect::<Result<_>>()?;
        let mut next_tiles = tiles.iter();
        let mut addresses = [0_u64; MOST_ARGUMENTS];
        let mut arguments = [ptr::null_mut::<c_void>(); MOST_ARGUMENTS];
        if launch.args.len() > MOST_ARGUMENTS {
            return Err(error(self.properties.id, launch.kernel.entry, "too many arguments"));
        }
        for ((arg, address), argument) in launch.args.iter().zip(&mut addresses).zip(&mut arguments) {
            *argument = match arg {
                Arg::Buffer { region, offset, .. } => {
                    *address = region.address() + *offset as u64;
                    ptr::from_mut(address).cast()
                }
                Arg::Null => ptr::from_mut(address).cast(),
                Arg::Bytes(bytes) => bytes.as_ptr().cast_mut().cast(),
                Arg::Tiles(_) => next_tiles.next().map_or(ptr::null(), ptr::from_ref).cast_mut().cast(),
            };
        }
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        // A graph has such edges between kernels only, and a collective can be other nodes.
        let is_after_collective = self.shared.is_after_collective.swap(false, Ordering::Relaxed);
        let overlaps = launch.overlap && self.properties.architecture >= 90 && !is_after_collective;
        let [x, y, z] = launch.grid;
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: launch.block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.shared,
            hStream: self.shared.stream,
            attrs: &mut overlap,
            numAttrs: u32::from(overlaps),
        };
        // SAFETY: the arguments live through the call, which copies them. `Device::launch` has checked that buffers are
        // inside regions of this driver. Only this crate and `gristmill_gpu` launch, through `Device`. The simulator
        // checks that the arguments match the kernel, and that the kernel stays within them.
        let code = unsafe { sys::cuLaunchKernelEx(&config, function.0, arguments.as_mut_ptr(), ptr::null_mut()) };
        check(self.properties.id, launch.kernel.entry, code)
    }

    fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
        Ok(Some(Box::new(CudaGraph::capture(&self.shared, work)?)))
    }

    fn prepare(&self, unit: &Unit) -> Result<()> {
        self.module(unit).map(|_| ())
    }

    fn is_compiled(&self, unit: &Unit) -> bool {
        let is_loaded = self.modules.read().unwrap_or_else(PoisonError::into_inner).contains_key(unit);
        is_loaded || self.code.has(unit)
    }

    fn notice(&self) -> Option<String> {
        self.code.notice()
    }

    fn code_report(&self) -> Option<String> {
        Some(self.code.report())
    }

    fn host_link(&self) -> Option<&dyn HostLink> {
        Some(self)
    }

    fn rank_link(&self) -> Option<&dyn RankLink> {
        Some(self)
    }
}

impl HostLink for Driver {
    fn allocate_pinned(&self, bytes: usize, what: &'static str) -> Result<u64> {
        self.shared.enter()?;
        let id = self.properties.id;
        let doing = format!("pinning {bytes} bytes of host memory for {what}");
        let mut memory = ptr::null_mut();
        let mut address = 0;
        // SAFETY: the places of the pointers live through the calls.
        unsafe {
            check(id, &doing, sys::cuMemHostAlloc(&mut memory, bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP))?;
            let mapped = check(id, &doing, sys::cuMemHostGetDevicePointer_v2(&mut address, memory, 0));
            if mapped.is_err() || address != memory.expose_provenance() as u64 {
                sys::cuMemFreeHost(memory);
                mapped?;
                return Err(error(id, &doing, "the driver has no unified addresses; place all experts on the device"));
            }
            memory.cast::<u8>().write_bytes(0, bytes);
        }
        Ok(address)
    }

    fn free_pinned(&self, address: u64) {
        // SAFETY: a `Region` frees what it allocated, once. All work that uses the memory ends before. A failure means that the
        // device is lost, which the next operation reports.
        unsafe {
            if self.shared.enter().and_then(|()| self.shared.wait()).is_ok() {
                sys::cuMemFreeHost(ptr::with_exposed_provenance_mut(address as usize));
            }
        }
    }

    fn pin(&self, bytes: &[u8]) -> Result<bool> {
        self.shared.enter()?;
        let from = bytes.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: the caller keeps the memory until `unpin`, which `PinnedBytes` calls. Only copies to the device read it.
        Ok(unsafe { sys::cuMemHostRegister_v2(from, bytes.len(), 0) } == CUresult::CUDA_SUCCESS)
    }

    fn unpin(&self, address: u64) {
        // SAFETY: `PinnedBytes` unpins what it pinned, once. A failure means that the device is lost, which the next operation
        // reports.
        unsafe {
            if self.shared.enter().is_ok() {
                sys::cuMemHostUnregister(ptr::with_exposed_provenance_mut(address as usize));
            }
        }
    }

    fn write_overlapped(&self, pieces: &[(u64, &[u8])]) -> Result<()> {
        self.shared.enter()?;
        self.copy_streams.write(pieces)
    }
}

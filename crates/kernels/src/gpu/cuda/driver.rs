//! The CUDA driver as a [`Gpu`].
//!
//! cudarc's bindings panic if the driver's library is missing, or one of its functions. [`Driver::open`] therefore looks
//! for the library, and refuses drivers of before CUDA 12.0, the version that the bindings are made for.

use super::jit::{self, Compiler};
use super::nvrtc::Nvrtc;
use crate::error::{Error, Result};
use crate::gpu::{Arg, Gpu, Kernel, Launch, Properties, Recording};
use crate::tensor::DeviceId;
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute, CUresult};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fmt::Debug;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The oldest driver, as the driver tells it: 1,000 · major + 10 · minor of its CUDA version.
const OLDEST_DRIVER: i32 = 12_000;
/// The oldest compute capability that the kernels are compiled for.
const OLDEST_CAPABILITY: u32 = 75;
/// Bytes of pinned host memory through which small copies go: twice as quick as pageable memory for a step's few numbers.
const STAGING: usize = 1 << 16;

/// A device under NVIDIA's driver.
pub struct Driver {
    properties: Properties,
    compiler: Compiler,
    shared: Arc<Context>,
    /// Compiled kernels; loaded ones stay.
    functions: RwLock<HashMap<OwnedKernel, Function>>,
    staging: Mutex<Staging>,
}

/// What a recording needs too.
struct Context {
    id: DeviceId,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
}

/// Pinned host memory.
struct Staging(*mut u8);

/// A kernel as a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnedKernel {
    file: &'static str,
    entry: &'static str,
    defines: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy)]
struct Function(sys::CUfunction);

// SAFETY: the driver's handles may be used from any thread once its context is current there, which `Context::enter` sees
// to; staging memory is behind a mutex.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}
// SAFETY: as above.
unsafe impl Send for Staging {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Driver({:?})", self.properties)
    }
}

fn error(id: DeviceId, what: &str, reason: impl Into<String>) -> Error {
    Error::Device { device: id, what: what.to_owned(), reason: reason.into() }
}

/// What the driver calls a failure.
fn reason(code: CUresult) -> String {
    let mut text = ptr::null();
    // SAFETY: the place of the pointer lives through the call; the text is the driver's, for good.
    unsafe {
        sys::cuGetErrorString(code, &mut text);
        match text.is_null() {
            true => format!("{code:?}"),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}

fn check(id: DeviceId, what: &str, code: CUresult) -> Result<()> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(error(id, what, reason(code))) }
}

/// Devices that the driver has: 0 if there is no driver.
///
/// # Errors
/// [`Error::Device`] if there is a driver that cannot be used.
pub fn count() -> Result<u32> {
    let id = DeviceId::Cuda(0);
    // SAFETY: opening NVIDIA's library has no requirements.
    if !unsafe { sys::is_culib_present() } {
        return Ok(0);
    }
    let (mut version, mut devices) = (0, 0);
    // SAFETY: the places of the results live through the calls. These functions are in every driver.
    let code = unsafe { sys::cuDriverGetVersion(&mut version) };
    check(id, "asking for the driver's version", code)?;
    if version < OLDEST_DRIVER {
        let reason =
            format!("it is for CUDA {}.{}; install one for CUDA 12.0 or newer", version / 1000, version % 1000 / 10);
        return Err(error(id, "the driver is too old", reason));
    }
    // SAFETY: as above.
    let code = unsafe { sys::cuInit(0) };
    if code == CUresult::CUDA_ERROR_NO_DEVICE {
        return Ok(0);
    }
    check(id, "starting the driver", code)?;
    // SAFETY: as above.
    check(id, "counting devices", unsafe { sys::cuDeviceGetCount(&mut devices) })?;
    Ok(u32::try_from(devices).unwrap_or(0))
}

impl Driver {
    /// Opens a device by its number.
    ///
    /// # Errors
    /// [`Error::Device`]: there is no driver or device, it is too old, or there is no NVRTC.
    pub fn open(number: u32) -> Result<Arc<Self>> {
        let id = DeviceId::Cuda(number);
        let devices = count()?;
        if number >= devices {
            let reason = match devices {
                0 => "there is no NVIDIA driver with a device here; the device `cpu` is everywhere".to_owned(),
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
            check(id, "asking for its properties", unsafe {
                sys::cuDeviceGetAttribute(&mut value, attribute, device)
            })?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let architecture = 10 * attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let (mut name, mut memory) = ([0; 256], 0);
        // SAFETY: there is room for as many characters as is said; the memory's place lives through the call.
        unsafe {
            check(id, "asking for its name", sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device))?;
            check(id, "asking for its memory", sys::cuDeviceTotalMem_v2(&mut memory, device))?;
        }
        let name: Vec<u8> = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
        let properties = Properties {
            id,
            name: String::from_utf8_lossy(&name).into_owned(),
            architecture,
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            memory: memory as u64,
        };
        if architecture < OLDEST_CAPABILITY {
            let reason = format!(
                "{} has compute capability {}.{}; 7.5 is needed",
                properties.name,
                architecture / 10,
                architecture % 10
            );
            return Err(error(id, "the device is too old", reason));
        }
        let nvrtc = Nvrtc::open().map_err(|reason| error(id, "compiling kernels", reason))?;
        let compiler = Compiler::new(nvrtc, architecture, jit::default_cache());
        let shared = Arc::new(Context::new(id, device)?);
        let staging = Mutex::new(shared.staging()?);
        Ok(Arc::new(Self { properties, compiler, shared, functions: RwLock::default(), staging }))
    }

    /// The compiler and the architecture, for people.
    pub fn compiler(&self) -> String {
        self.compiler.describe()
    }

    fn function(&self, kernel: &Kernel) -> Result<Function> {
        let defines = kernel.defines.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        let key = OwnedKernel { file: kernel.file, entry: kernel.entry, defines };
        if let Some(&function) = self.functions.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(function);
        }
        let id = self.properties.id;
        let what = || format!("kernel {} of {} {:?}", kernel.entry, kernel.file, kernel.defines);
        let cubin = self.compiler.cubin(kernel).map_err(|reason| error(id, &what(), reason))?;
        let entry = CString::new(kernel.entry).map_err(|_| error(id, &what(), "a name with a zero byte"))?;
        self.shared.enter()?;
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the machine code is NVRTC's or has its hash; the module is never unloaded, so the function stays.
        unsafe {
            check(id, &what(), sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()))?;
            check(id, &what(), sys::cuModuleGetFunction(&mut function, module, entry.as_ptr()))?;
        }
        let mut fixed = 0;
        let asked = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function was found above.
        unsafe {
            check(id, &what(), sys::cuFuncGetAttribute(&mut fixed, asked, function))?;
            let room = self.properties.shared_bytes as i32 - fixed;
            check(id, &what(), sys::cuFuncSetAttribute(function, most, room.max(0)))?;
        }
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        Ok(*functions.entry(key).or_insert(Function(function)))
    }

    fn staging(&self) -> MutexGuard<'_, Staging> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Context {
    fn new(id: DeviceId, device: sys::CUdevice) -> Result<Self> {
        let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the places of the handles live through the calls; both are given back in `drop`.
        unsafe {
            check(id, "taking its context", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
            check(id, "entering its context", sys::cuCtxSetCurrent(context))?;
            let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
            check(id, "making a stream", sys::cuStreamCreate(&mut stream, flags))?;
        }
        Ok(Self { id, device, context, stream })
    }

    /// Makes the context this thread's.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        check(self.id, "entering its context", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    fn staging(&self) -> Result<Staging> {
        let mut memory = ptr::null_mut();
        // SAFETY: the context is current, the pointer's place lives through the call.
        check(self.id, "pinning host memory", unsafe { sys::cuMemAllocHost_v2(&mut memory, STAGING) })?;
        Ok(Staging(memory.cast()))
    }

    fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives as long as `self`.
        check(self.id, "running kernels", unsafe { sys::cuStreamSynchronize(self.stream) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: handles that nobody else has. Failures at the end have nobody to tell.
        unsafe {
            sys::cuCtxSetCurrent(self.context);
            sys::cuStreamDestroy_v2(self.stream);
            sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let staging = self.staging();
        if self.shared.enter().is_ok() && self.shared.wait().is_ok() {
            // SAFETY: the memory was pinned by `Context::staging`, and no copy is under way.
            unsafe { sys::cuMemFreeHost(staging.0.cast()) };
        }
    }
}

impl Gpu for Driver {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_memory(&self) -> Result<u64> {
        self.shared.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the places of the numbers live through the call.
        check(self.properties.id, "asking for free memory", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(free as u64)
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
        // SAFETY: a `Region` frees what it allocated, once. The driver waits for work that uses it. A failure means that
        // the device is lost, which the next operation tells.
        unsafe {
            if self.shared.enter().is_ok() {
                sys::cuMemFree_v2(address);
            }
        }
    }

    fn zero(&self, address: u64, bytes: usize) -> Result<()> {
        self.shared.enter()?;
        // SAFETY: a `Region` names its own memory.
        let code = unsafe { sys::cuMemsetD8Async(address, 0, bytes, self.shared.stream) };
        check(self.properties.id, "zeroing memory", code)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.shared.enter()?;
        // SAFETY: a `Region` names its own memory, and has seen that the bytes fit. The driver copies pageable host memory
        // before it returns.
        let code =
            unsafe { sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.shared.stream) };
        check(self.properties.id, "copying to it", code)
    }

    fn read(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.shared.enter()?;
        let staging = self.staging();
        let total: usize = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        let pinned = total <= STAGING;
        let mut at = 0;
        for (address, bytes) in pieces.iter_mut().filter(|(_, bytes)| !bytes.is_empty()) {
            // SAFETY: inside the staging memory, since all pieces together fit.
            let to = if pinned { unsafe { staging.0.add(at) } } else { bytes.as_mut_ptr() };
            at += bytes.len();
            // SAFETY: the target has room for the bytes and lives until the wait below; the source is inside a region.
            let code =
                unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast::<c_void>(), *address, bytes.len(), self.shared.stream) };
            check(self.properties.id, "copying from it", code)?;
        }
        self.shared.wait()?;
        let mut at = 0;
        for (_, bytes) in pieces.iter_mut().filter(|_| pinned) {
            // SAFETY: the bytes were copied there above; the staging memory and the target do not overlap.
            unsafe { ptr::copy_nonoverlapping(staging.0.add(at), bytes.as_mut_ptr(), bytes.len()) };
            at += bytes.len();
        }
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.shared.enter()?;
        // SAFETY: a `Region` names its own memory.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.shared.stream) };
        check(self.properties.id, "copying within it", code)
    }

    fn launch(&self, launch: &Launch) -> Result<()> {
        let function = self.function(&launch.kernel)?;
        self.shared.enter()?;
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
            };
        }
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
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
            numAttrs: u32::from(launch.overlap && self.properties.architecture >= 90),
        };
        // SAFETY: the arguments live through the call, which copies them. That they are what the kernel takes, and that it
        // stays within them, is what the simulator checks.
        let code = unsafe { sys::cuLaunchKernelEx(&config, function.0, arguments.as_mut_ptr(), ptr::null_mut()) };
        check(self.properties.id, launch.kernel.entry, code)
    }

    fn record(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Recording>>> {
        self.shared.enter()?;
        let (id, stream) = (self.properties.id, self.shared.stream);
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as `self`.
        check(id, "recording", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) })?;
        let outcome = work();
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is being captured; the graph's place lives through the call.
        let ended = check(id, "recording", unsafe { sys::cuStreamEndCapture(stream, &mut graph) });
        outcome?;
        ended?;
        let mut executable = ptr::null_mut();
        // SAFETY: the graph is whole; it is not needed after it was instantiated.
        let code = unsafe {
            let code = sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0);
            sys::cuGraphDestroy(graph);
            code
        };
        check(id, "preparing a recording", code)?;
        Ok(Some(Box::new(Graph { executable, context: Arc::clone(&self.shared) })))
    }

    fn prepare(&self, kernel: &Kernel) -> Result<()> {
        self.function(kernel).map(|_| ())
    }
}

/// Arguments that a kernel can have here.
const MOST_ARGUMENTS: usize = 24;

/// A CUDA graph.
struct Graph {
    executable: sys::CUgraphExec,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Graph {}
// SAFETY: as for `Context`.
unsafe impl Sync for Graph {}

impl Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Graph")
    }
}

impl Recording for Graph {
    fn replay(&self) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the graph lives as long as `self`; the buffers that it names are its maker's to keep.
        check(self.context.id, "replaying", unsafe { sys::cuGraphLaunch(self.executable, self.context.stream) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle. A failure at the end has nobody to tell.
        unsafe {
            if self.context.enter().is_ok() {
                sys::cuGraphExecDestroy(self.executable);
            }
        }
    }
}

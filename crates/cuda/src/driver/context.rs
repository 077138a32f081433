//! The driver's library, a device's context and stream, and driver errors.

use cudarc::driver::sys::{self, CUresult};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::tensor::DeviceId;
use std::ffi::CStr;
use std::ptr;

/// Bytes of pinned host memory through which small copies go: twice as quick as pageable memory for a step's few
/// numbers.
pub(super) const STAGING: usize = 1 << 16;

/// A device's primary context, and the stream in which all its work is done.
pub(super) struct Context {
    pub(super) id: DeviceId,
    device: sys::CUdevice,
    context: sys::CUcontext,
    pub(super) stream: sys::CUstream,
}

/// Pinned host memory, [`STAGING`] bytes.
pub(super) struct Staging(*mut u8);

// SAFETY: the driver's handles may be used from any thread once its context is current there, which `Context::enter`
// sees to; staging memory is behind a mutex.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}
// SAFETY: as above.
unsafe impl Send for Staging {}

pub(super) fn error(id: DeviceId, what: &str, reason: impl Into<String>) -> Error {
    Error::Device { device: id, what: what.to_owned(), reason: reason.into() }
}

/// The driver's name of a failure, and what can be done about it.
fn reason(code: CUresult) -> String {
    let mut text = ptr::null();
    // SAFETY: the pointer lives through the call; the string is the driver's and static.
    let said = unsafe {
        sys::cuGetErrorString(code, &mut text);
        match text.is_null() {
            true => format!("{code:?}"),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    };
    said + remedy(code)
}

fn remedy(code: CUresult) -> &'static str {
    match code {
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
        | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
        | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
        | CUresult::CUDA_ERROR_UNKNOWN => {
            "; the device is lost to this process: start again, `gristmill doctor` tests the device, `--device cpu` \
             does without it"
        }
        CUresult::CUDA_ERROR_INVALID_IMAGE | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => {
            "; the driver may be older than NVRTC: install a newer driver, or an older NVRTC"
        }
        _ => "",
    }
}

pub(super) fn check(id: DeviceId, what: &str, code: CUresult) -> Result<()> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(error(id, what, reason(code))) }
}

impl Context {
    pub(super) fn new(id: DeviceId, device: sys::CUdevice) -> Result<Self> {
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
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        check(self.id, "entering its context", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Waits until all work is done.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives as long as `self`.
        check(self.id, "running kernels", unsafe { sys::cuStreamSynchronize(self.stream) })
    }

    /// Pins memory. The context must be this thread's.
    pub(super) fn staging(&self) -> Result<Staging> {
        let mut memory = ptr::null_mut();
        // SAFETY: the context is current, the pointer's place lives through the call.
        check(self.id, "pinning host memory", unsafe { sys::cuMemAllocHost_v2(&mut memory, STAGING) })?;
        Ok(Staging(memory.cast()))
    }
}

impl Staging {
    /// Where it begins.
    pub(super) fn start(&self) -> *mut u8 {
        self.0
    }

    /// Gives it back. The context must be this thread's, and no copy under way.
    pub(super) fn release(&mut self) {
        // SAFETY: the memory was pinned by `Context::staging`; the driver refuses a pointer that it does not know.
        unsafe { sys::cuMemFreeHost(std::mem::replace(&mut self.0, ptr::null_mut()).cast()) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the only owner of the handles. A failure here has no caller to report to.
        unsafe {
            sys::cuCtxSetCurrent(self.context);
            sys::cuStreamDestroy_v2(self.stream);
            sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

//! The driver library, a device's context and stream, and driver errors.

use cudarc::driver::sys::{self, CUresult};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::tensor::DeviceId;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::AtomicBool;

/// A device's primary context, and the stream for all of its work.
pub(super) struct Context {
    pub(super) id: DeviceId,
    device: sys::CUdevice,
    context: sys::CUcontext,
    pub(super) stream: sys::CUstream,
    /// Whether the last work of the stream is a collective.
    pub(super) is_after_collective: AtomicBool,
}

// SAFETY: the driver's handles may be used from any thread once its context is current there, which `Context::enter`
// sees to.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

pub(super) fn error(id: DeviceId, what: &str, reason: impl Into<String>) -> Error {
    Error::Device { device: id, what: what.to_owned(), reason: reason.into() }
}

/// The driver's name of an error, and advice.
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
            "; the device is lost to this process: start again, `gristmill doctor` tests the device; the \
             CPU works without it"
        }
        CUresult::CUDA_ERROR_INVALID_IMAGE | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => {
            "; the driver may be older than NVRTC: install a newer driver, or an older NVRTC"
        }
        _ => "",
    }
}

pub(super) fn check(id: DeviceId, what: &str, code: CUresult) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::OutOfDeviceMemory { device: id, what: what.to_owned() }),
        code => Err(error(id, what, reason(code))),
    }
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
        Ok(Self { id, device, context, stream, is_after_collective: AtomicBool::new(false) })
    }

    /// Makes the context current in this thread.
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        check(self.id, "entering its context", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Whether it is the primary context that a handle names.
    pub(super) fn is(&self, handle: sys::CUcontext) -> bool {
        self.context == handle
    }

    /// Waits until all submitted work is done.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives as long as `self`.
        check(self.id, "running kernels", unsafe { sys::cuStreamSynchronize(self.stream) })
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

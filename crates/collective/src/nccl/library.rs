//! NCCL's library, opened at run time. Its C interface is that of `nccl.h`
//! (<https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html>).

#![allow(unsafe_code)]

use crate::Error;
use libloading::Library as System;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};

pub(super) const LIBRARY: &str = "NCCL";
/// `NCCL_UNIQUE_ID_BYTES`.
pub(super) const ID_BYTES: usize = 128;

/// A communicator.
pub(super) type Handle = *mut c_void;
pub(super) type Stream = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; ID_BYTES]);

type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
type GetUniqueId = unsafe extern "C" fn(*mut UniqueId) -> c_int;
type InitRankConfig = unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int, *mut Config) -> c_int;
type OfCommunicator = unsafe extern "C" fn(Handle) -> c_int;
type AsyncError = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;
type AllReduce = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Stream) -> c_int;
type AllGather = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Handle, Stream) -> c_int;
type Broadcast = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Stream) -> c_int;
type Send = unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Handle, Stream) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Handle, Stream) -> c_int;

/// `ncclInProgress`.
pub(super) const IN_PROGRESS: c_int = 7;
/// `ncclFloat32`, `ncclUint8` and `ncclSum`.
pub(super) const F32: c_int = 7;
pub(super) const U8: c_int = 1;
pub(super) const SUM: c_int = 0;

/// Sends and receives are in 2.7, communicators that do not block in 2.14, the settings below in 2.17; 2.18 is the oldest version of
/// CUDA 12.2, and what other programs require.
const OLDEST: c_int = 21_800;
/// The first version whose [`Config`] turns NVLink multicast off.
const WITH_NVLS_MODE: c_int = 23_100;
const FILE: &str = "libnccl.so.2";
/// Where the Python package `nvidia-nccl-cu13` (or `cu12`) has it, in a folder of Python packages.
const IN_PYTHON: &str = "nvidia/nccl/lib";

/// `ncclConfig_t` of 2.31. A library reads as many bytes as `size` says; older versions know the fields up to `split_share`.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    /// The size of a cluster of thread groups, and how many at least and at most.
    groups: [c_int; 3],
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    name: *const c_char,
    /// From `collnetEnable` to `hostCftMode`.
    others: [c_int; 14],
    nvls_host_mode: c_int,
}

const MAGIC: c_uint = 0xcafe_beef;
/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;
/// `ncclNvlsHostModeDisable`.
const NO_NVLS: c_int = c_int::MAX;
/// The size of version 2.17, with the padding after `split_share`.
const SIZE_OF_2_17: usize = std::mem::offset_of!(Config, traffic_class) + size_of::<c_int>();

impl Config {
    /// Calls return before their work is done, so that a rank that never comes is noticed; NVLink multicast is off, because it needs
    /// a fabric that containers often lack, and then fails.
    pub(super) fn new(library_version: c_int) -> Self {
        let (size, version) = match library_version >= WITH_NVLS_MODE {
            true => (size_of::<Self>(), WITH_NVLS_MODE),
            false => (SIZE_OF_2_17, 21_700),
        };
        Self {
            size,
            magic: MAGIC,
            version: version.unsigned_abs(),
            blocking: 0,
            groups: [UNDEFINED; 3],
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            name: std::ptr::null(),
            others: [UNDEFINED; 14],
            nvls_host_mode: NO_NVLS,
        }
    }
}

/// The functions of the library, which stays open as long as the process lives.
pub(super) struct Functions {
    pub(super) version: c_int,
    pub(super) path: PathBuf,
    pub(super) unique_id: GetUniqueId,
    pub(super) init: InitRankConfig,
    pub(super) finalize: OfCommunicator,
    pub(super) destroy: OfCommunicator,
    pub(super) abort: OfCommunicator,
    pub(super) async_error: AsyncError,
    pub(super) error_string: ErrorString,
    pub(super) all_reduce: AllReduce,
    pub(super) all_gather: AllGather,
    pub(super) broadcast: Broadcast,
    pub(super) send: Send,
    pub(super) receive: Receive,
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "NCCL {} of {}", text_of(self.version), self.path.display())
    }
}

impl Functions {
    /// Opens the first library of the folders, or the one that the system's loader finds.
    pub(super) fn open(folders: &[PathBuf]) -> Result<Self, Error> {
        let inside = |folder: &PathBuf| [folder.join(FILE), folder.join(IN_PYTHON).join(FILE)];
        let found = folders.iter().flat_map(inside).filter(|path| path.exists());
        let mut refused = String::new();
        for path in found.chain([PathBuf::from(FILE)]) {
            match Self::open_at(&path) {
                Ok(functions) => return Ok(functions),
                Err(reason) => refused.push_str(&format!("; {}: {reason}", path.display())),
            }
        }
        Err(failure(format!("cannot be used{refused}")))
    }

    fn open_at(path: &Path) -> Result<Self, String> {
        let text = |error: libloading::Error| match std::error::Error::source(&error) {
            Some(source) => source.to_string(),
            None => error.to_string(),
        };
        // SAFETY: NVIDIA's library, whose initialisation has no requirements.
        let library = unsafe { System::new(path) }.map_err(text)?;
        let mut version = 0;
        // SAFETY: the signature is that of nccl.h; the pointer is to an integer that lives through the call.
        unsafe { library.get::<GetVersion>(b"ncclGetVersion").map_err(text)?(&mut version) };
        if version < OLDEST {
            return Err(format!("too old (found {}, expected {} or newer)", text_of(version), text_of(OLDEST)));
        }
        // SAFETY: the signatures are those of nccl.h, the same in all versions from `OLDEST` on; the library is never closed.
        let functions = unsafe {
            Self {
                version,
                path: path.to_owned(),
                unique_id: *library.get::<GetUniqueId>(b"ncclGetUniqueId").map_err(text)?,
                init: *library.get::<InitRankConfig>(b"ncclCommInitRankConfig").map_err(text)?,
                finalize: *library.get::<OfCommunicator>(b"ncclCommFinalize").map_err(text)?,
                destroy: *library.get::<OfCommunicator>(b"ncclCommDestroy").map_err(text)?,
                abort: *library.get::<OfCommunicator>(b"ncclCommAbort").map_err(text)?,
                async_error: *library.get::<AsyncError>(b"ncclCommGetAsyncError").map_err(text)?,
                error_string: *library.get::<ErrorString>(b"ncclGetErrorString").map_err(text)?,
                all_reduce: *library.get::<AllReduce>(b"ncclAllReduce").map_err(text)?,
                all_gather: *library.get::<AllGather>(b"ncclAllGather").map_err(text)?,
                broadcast: *library.get::<Broadcast>(b"ncclBroadcast").map_err(text)?,
                send: *library.get::<Send>(b"ncclSend").map_err(text)?,
                receive: *library.get::<Receive>(b"ncclRecv").map_err(text)?,
            }
        };
        std::mem::forget(library);
        Ok(functions)
    }

    /// What a code that is an error means.
    pub(super) fn error(&self, code: c_int) -> Error {
        // SAFETY: any code may be asked for; the string is of the library's data.
        let text = unsafe { CStr::from_ptr((self.error_string)(code)) }.to_string_lossy().into_owned();
        let remedy = "NCCL_DEBUG=INFO prints more; check the devices with nvidia-smi, and start again";
        Error::Library { library: LIBRARY, problem: format!("{text} (code {code})"), remedy: remedy.into() }
    }
}

pub(super) fn text_of(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

fn failure(problem: String) -> Error {
    let remedy =
        "install NCCL 2.18 or newer: `pip install nvidia-nccl-cu13`, or Debian's and NVIDIA's package libnccl2";
    Error::Library { library: LIBRARY, problem, remedy: remedy.into() }
}

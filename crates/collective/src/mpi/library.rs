//! Open MPI's library, opened at run time. Its C interface is that of <https://docs.open-mpi.org>; what C macros hide (handles of
//! predefined objects, the struct of a status) is Open MPI's, and the same in versions 4 and 5.

#![allow(unsafe_code)]

use crate::Error;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

/// A communicator, data type, error handler, request or message: all are pointers.
type Handle = *mut c_void;

type InitThread = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
type OfCommunicator = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type SetErrorHandler = unsafe extern "C" fn(Handle, Handle) -> c_int;
type Isend = unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Improbe = unsafe extern "C" fn(c_int, c_int, Handle, *mut c_int, *mut Handle, *mut Status) -> c_int;
type Imrecv = unsafe extern "C" fn(*mut c_void, c_int, Handle, *mut Handle, *mut Handle) -> c_int;
type Test = unsafe extern "C" fn(*mut Handle, *mut c_int, *mut Status) -> c_int;
type GetCount = unsafe extern "C" fn(*const Status, Handle, *mut c_int) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
type ShowHelp = unsafe extern "C" fn(*const c_char, *const c_char, bool) -> c_int;
type Initialized = unsafe extern "C" fn(*mut c_int) -> c_int;

/// `MPI_THREAD_SERIALIZED`: any thread calls, one at a time.
const SERIALIZED: c_int = 2;
/// `MPI_ANY_SOURCE` and `MPI_ANY_TAG`.
const ANY: c_int = -1;
/// `MPI_MAX_ERROR_STRING` is 256.
const ERROR_BYTES: usize = 256;
/// `MPI_MAX_LIBRARY_VERSION_STRING` is 256.
const VERSION_BYTES: usize = 256;

/// `MPI_Status`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    cancelled: c_int,
    bytes: usize,
}

const NAME: &str = "Open MPI";
const REMEDY: &str = "install Open MPI 4 or 5 (Debian: apt install openmpi-bin)";

/// The functions that ranks call, after `MPI_Init_thread`.
#[derive(Debug)]
pub(super) struct Library {
    isend: Isend,
    improbe: Improbe,
    imrecv: Imrecv,
    test: Test,
    get_count: GetCount,
    error_string: ErrorString,
    finalize: Finalize,
    world: Handle,
    byte: Handle,
    pub(super) rank: usize,
    pub(super) size: usize,
}

// SAFETY: the handles are addresses of objects that any thread may name; the library was started for calls of any thread.
unsafe impl Send for Library {}

/// Bytes that are sent or received. Invariant: the buffer is neither moved nor read until the request is done, because MPI has its
/// address.
#[derive(Debug)]
pub(super) struct Transfer {
    buffer: Vec<u8>,
    request: Handle,
    is_done: bool,
}

// SAFETY: as of the library; the buffer is owned.
unsafe impl Send for Transfer {}

impl Library {
    /// Opens the library in a folder, or where the system's loader finds it, and starts MPI.
    pub(super) fn start(folder: Option<&Path>) -> Result<Self, Error> {
        let library = open(folder)?;
        let lacks = |error: libloading::Error| failure(error.to_string());
        // SAFETY: types of functions and statics are those of Open MPI's mpi.h.
        let (this, init, initialized, version, rank, size, set_handler, errors_return) = unsafe {
            let object = |name: &[u8]| library.get::<Handle>(name).map(|symbol| *symbol).map_err(lacks);
            let this = Self {
                isend: *library.get::<Isend>(b"MPI_Isend").map_err(lacks)?,
                improbe: *library.get::<Improbe>(b"MPI_Improbe").map_err(lacks)?,
                imrecv: *library.get::<Imrecv>(b"MPI_Imrecv").map_err(lacks)?,
                test: *library.get::<Test>(b"MPI_Test").map_err(lacks)?,
                get_count: *library.get::<GetCount>(b"MPI_Get_count").map_err(lacks)?,
                error_string: *library.get::<ErrorString>(b"MPI_Error_string").map_err(lacks)?,
                finalize: *library.get::<Finalize>(b"MPI_Finalize").map_err(lacks)?,
                world: object(b"ompi_mpi_comm_world")?,
                byte: object(b"ompi_mpi_byte")?,
                rank: 0,
                size: 0,
            };
            (
                this,
                *library.get::<InitThread>(b"MPI_Init_thread").map_err(lacks)?,
                *library.get::<Initialized>(b"MPI_Initialized").map_err(lacks)?,
                *library.get::<Version>(b"MPI_Get_library_version").map_err(lacks)?,
                *library.get::<OfCommunicator>(b"MPI_Comm_rank").map_err(lacks)?,
                *library.get::<OfCommunicator>(b"MPI_Comm_size").map_err(lacks)?,
                *library.get::<SetErrorHandler>(b"MPI_Comm_set_errhandler").map_err(lacks)?,
                object(b"ompi_mpi_errors_return")?,
            )
        };
        // SAFETY: in Open MPI 4, of which alone it is used below, it is a variable with a pointer to a function.
        let show_help = unsafe { library.get::<*mut ShowHelp>(b"opal_show_help") }.ok().map(|symbol| *symbol);
        // Its plugins call it until the process ends.
        std::mem::forget(library);
        let (mut is_started, mut level, mut numbers) = (0, 0, [0; 2]);
        // SAFETY: may be called at any time.
        this.check(unsafe { initialized(&mut is_started) })?;
        if is_started != 0 {
            return Err(
                failure("it was started before in this process".into()).with_remedy("open one group of ranks only")
            );
        }
        // SAFETY: MPI was not started; without arguments it reads those of its environment.
        this.check(unsafe { init(ptr::null_mut(), ptr::null_mut(), SERIALIZED, &mut level) })?;
        if level < SERIALIZED {
            let problem = "it was built without threads (found MPI_THREAD_FUNNELED, expected MPI_THREAD_SERIALIZED)";
            return Err(failure(problem.into()));
        }
        // SAFETY: MPI is started, and the communicator exists as long as it is.
        unsafe {
            this.check(set_handler(this.world, errors_return))?;
            this.check(rank(this.world, &mut numbers[0]))?;
            this.check(size(this.world, &mut numbers[1]))?;
        }
        if let (true, Some(show_help)) = (this.is_version_4(version), show_help) {
            // SAFETY: the variable lives as long as the library, and the ABI allows to ignore arguments after the third.
            unsafe { *show_help = no_help };
        }
        let number = |number: c_int| usize::try_from(number).unwrap_or(0);
        Ok(Self { rank: number(numbers[0]), size: number(numbers[1]), ..this })
    }

    /// Starts to send bytes.
    pub(super) fn send(&self, to: usize, buffer: Vec<u8>) -> Result<Transfer, Error> {
        let too_long =
            |_| failure(format!("a message of {} bytes is too long", buffer.len())).with_remedy("use shorter prompts");
        let (bytes, to) = (c_int::try_from(buffer.len()).map_err(too_long)?, to as c_int);
        let mut transfer = Transfer { buffer, request: ptr::null_mut(), is_done: false };
        let (at, request) = (transfer.buffer.as_ptr().cast(), &mut transfer.request);
        // SAFETY: the buffer has as many bytes, and lives until the request is done (`Transfer`).
        self.check(unsafe { (self.isend)(at, bytes, self.byte, to, 0, self.world, request) })?;
        Ok(transfer)
    }

    /// Starts to receive the next message, if one has come, into a spare buffer, and returns its sender.
    pub(super) fn next(&self, spare: &mut Vec<Vec<u8>>) -> Result<Option<(usize, Transfer)>, Error> {
        let (mut has_come, mut message, mut status, mut bytes) = (0, ptr::null_mut(), Status::default(), 0);
        // SAFETY: the four places live through the calls; the message is received once, below.
        unsafe {
            self.check((self.improbe)(ANY, ANY, self.world, &mut has_come, &mut message, &mut status))?;
            if has_come == 0 {
                return Ok(None);
            }
            self.check((self.get_count)(&status, self.byte, &mut bytes))?;
        }
        let mut buffer = spare.pop().unwrap_or_default();
        buffer.resize(usize::try_from(bytes).unwrap_or(0), 0);
        let mut transfer = Transfer { buffer, request: ptr::null_mut(), is_done: false };
        let (at, request) = (transfer.buffer.as_mut_ptr().cast(), &mut transfer.request);
        // SAFETY: the buffer has the bytes of the message, and lives until the request is done (`Transfer`).
        self.check(unsafe { (self.imrecv)(at, bytes, self.byte, &mut message, request) })?;
        Ok(Some((usize::try_from(status.source).unwrap_or(0), transfer)))
    }

    /// Whether a transfer is complete.
    pub(super) fn is_done(&self, transfer: &mut Transfer) -> Result<bool, Error> {
        if !transfer.is_done {
            let (mut is_done, mut status) = (0, Status::default());
            // SAFETY: the request was started and is not done; both places live through the call.
            self.check(unsafe { (self.test)(&mut transfer.request, &mut is_done, &mut status) })?;
            transfer.is_done = is_done != 0;
        }
        Ok(transfer.is_done)
    }

    /// Ends MPI, once all ranks call it.
    pub(super) fn finish(&self) -> Result<(), Error> {
        // SAFETY: no call of MPI follows, because the caller drops the library.
        self.check(unsafe { (self.finalize)() })
    }

    fn is_version_4(&self, version: Version) -> bool {
        let (mut text, mut bytes) = ([0_u8; VERSION_BYTES], 0);
        // SAFETY: the buffer has the size that MPI requires.
        unsafe { version(text.as_mut_ptr().cast(), &mut bytes) };
        text.starts_with(b"Open MPI v4.")
    }

    fn check(&self, code: c_int) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        let (mut text, mut bytes) = ([0_u8; ERROR_BYTES], 0);
        // SAFETY: the buffer has the size that MPI requires.
        unsafe { (self.error_string)(code, text.as_mut_ptr().cast(), &mut bytes) };
        let text = String::from_utf8_lossy(&text[..usize::try_from(bytes).unwrap_or(0).min(ERROR_BYTES)]).into_owned();
        Err(failure(text).with_remedy("look for messages of mpirun, and start all ranks again"))
    }
}

impl Transfer {
    /// The bytes that were received, if they are complete.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        if self.is_done { std::mem::take(&mut self.buffer) } else { Vec::new() }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if !self.is_done {
            // MPI may still read or write it.
            std::mem::forget(std::mem::take(&mut self.buffer));
        }
    }
}

/// Instead of Open MPI 4's function that prints a message through `mpirun` and waits until that has: when a rank has died, its
/// message of the lost connection would wait for `mpirun`, which meanwhile waits for the end of this process.
unsafe extern "C" fn no_help(_file: *const c_char, _topic: *const c_char, _has_header: bool) -> c_int {
    0
}

fn failure(problem: String) -> Error {
    Error::Library { library: NAME, problem, remedy: REMEDY.into() }
}

#[cfg(unix)]
type System = libloading::os::unix::Library;
#[cfg(not(unix))]
type System = libloading::Library;

#[cfg(unix)]
fn open(folder: Option<&Path>) -> Result<System, Error> {
    use libloading::os::unix::{RTLD_GLOBAL, RTLD_NOW};
    let [name, others] = match cfg!(target_os = "macos") {
        true => ["libmpi.40.dylib", "libmpi.12.dylib"],
        false => ["libmpi.so.40", "libmpi.so.12"],
    };
    let path = |name: &str| folder.map_or_else(|| name.into(), |folder| folder.join(name));
    // Global, because the library's plugins look for its functions there.
    // SAFETY: Open MPI's library, whose initialisation has no requirements.
    let error = match unsafe { System::open(Some(path(name)), RTLD_NOW | RTLD_GLOBAL) } {
        Ok(library) => return Ok(library),
        Err(error) => error,
    };
    // SAFETY: MPICH's or Intel's library, of which the same holds; nothing of it is called.
    if unsafe { System::open(Some(path(others)), RTLD_NOW) }.is_ok() {
        return Err(failure(format!("only another MPI was found ({others}, of MPICH or Intel; expected {name})")));
    }
    let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    Err(failure(format!("{name} cannot be loaded ({reason})")))
}

#[cfg(not(unix))]
fn open(_: Option<&Path>) -> Result<System, Error> {
    Err(failure("there is none for this system".into()).with_remedy("use Linux or macOS"))
}

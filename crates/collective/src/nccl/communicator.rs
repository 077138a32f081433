//! NCCL's groups, and a device as a rank of one.

#![allow(unsafe_code)]

use super::library::{
    Config, F32, Functions, Handle, ID_BYTES, IN_PROGRESS, LIBRARY, SUM, Stream, U8, UniqueId, text_of,
};
use crate::Error;
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks whether a call has been accepted.
const NAP: Duration = Duration::from_micros(100);

/// NCCL's library.
#[derive(Debug, Clone)]
pub struct NcclLibrary(Arc<Functions>);

/// Names a group of ranks: rank 0 creates it, and each rank needs it to [`join`](NcclLibrary::join).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NcclGroup([u8; ID_BYTES]);

impl NcclGroup {
    /// The bytes, to send them to other processes.
    pub fn to_bytes(self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// The group of these bytes; `None` if there are more or fewer.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl NcclLibrary {
    /// Opens `libnccl.so.2` of a folder, of a folder of Python packages, or where the system's loader finds it.
    ///
    /// # Errors
    /// No library, or one that is older than 2.18.
    pub fn open(folders: &[PathBuf]) -> Result<Self, Error> {
        Functions::open(folders).map(|functions| Self(Arc::new(functions)))
    }

    /// The version, as `2.32.3`.
    pub fn version(&self) -> String {
        text_of(self.0.version)
    }

    /// Where the library was found; a name alone if the system's loader knew the place.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// A new group.
    ///
    /// # Errors
    /// NCCL's: it has no network interface, for example.
    pub fn group(&self) -> Result<NcclGroup, Error> {
        let mut id = UniqueId([0; ID_BYTES]);
        // SAFETY: the place lives through the call.
        match unsafe { (self.0.unique_id)(&mut id) } {
            0 => Ok(NcclGroup(id.0)),
            code => Err(self.0.error(code)),
        }
    }

    /// Joins a group with the CUDA device that is current on this thread, and waits for the other ranks. Each rank calls it on a thread
    /// of its own.
    ///
    /// # Errors
    /// NCCL's, and a deadline if other ranks do not come.
    pub fn join(&self, group: NcclGroup, rank: usize, size: usize, deadline: Duration) -> Result<Nccl, Error> {
        let number = |number: usize| c_int::try_from(number).ok().filter(|_| rank < size);
        let (Some(its_rank), Some(ranks)) = (number(rank), number(size)) else {
            return Err(Error::Rank { rank, size });
        };
        let functions = self.0.clone();
        let mut config = Config::new(functions.version);
        let mut this = Nccl {
            functions,
            communicator: std::ptr::null_mut(),
            rank,
            size,
            deadline,
            has_failed: AtomicBool::new(false),
        };
        // SAFETY: the places live through the call; NCCL copies the settings.
        let code =
            unsafe { (this.functions.init)(&mut this.communicator, ranks, UniqueId(group.0), its_rank, &mut config) };
        this.settle("join", code)?;
        Ok(this)
    }
}

/// A CUDA device as a rank. Addresses are of that device.
#[derive(Debug)]
pub struct Nccl {
    functions: Arc<Functions>,
    communicator: Handle,
    rank: usize,
    size: usize,
    deadline: Duration,
    has_failed: AtomicBool,
}

// SAFETY: a communicator may be used by any thread; calls of one rank follow each other, for which the callers of the unsafe functions
// care, and the others only read its state.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

impl Nccl {
    /// This rank, from 0 on.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Replaces `count` f32 at an address by their sums over all ranks.
    ///
    /// # Safety
    /// The address has as many values in memory of the device, and the stream is of its context. Both live, and nothing else uses the
    /// values, until the stream has done the call. No other thread calls the rank meanwhile.
    ///
    /// # Errors
    /// NCCL's. One of a later call or of [`Self::check`] can be of this call.
    pub unsafe fn all_reduce_device(&self, address: u64, count: usize, stream: Stream) -> Result<(), Error> {
        let at = address as *mut c_void;
        // SAFETY: the caller's.
        let code = unsafe { (self.functions.all_reduce)(at, at, count, F32, SUM, self.communicator, stream) };
        self.settle("all_reduce", code)
    }

    /// Writes the parts of all ranks, `count` f32 each, one after another.
    ///
    /// # Safety
    /// As of [`Self::all_reduce_device`]; `all` has `size` times as many values.
    ///
    /// # Errors
    /// As of [`Self::all_reduce_device`].
    pub unsafe fn all_gather_device(&self, part: u64, all: u64, count: usize, stream: Stream) -> Result<(), Error> {
        let (part, all) = (part as *const c_void, all as *mut c_void);
        // SAFETY: the caller's.
        let code = unsafe { (self.functions.all_gather)(part, all, count, F32, self.communicator, stream) };
        self.settle("all_gather", code)
    }

    /// Replaces bytes at an address by those of rank `root`.
    ///
    /// # Safety
    /// As of [`Self::all_reduce_device`].
    ///
    /// # Errors
    /// As of [`Self::all_reduce_device`].
    pub unsafe fn broadcast_device(
        &self,
        root: usize,
        address: u64,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), Error> {
        let (root, at) = (self.other(root)?, address as *mut c_void);
        // SAFETY: the caller's.
        let code = unsafe { (self.functions.broadcast)(at, at, bytes, U8, root, self.communicator, stream) };
        self.settle("broadcast", code)
    }

    /// Sends `count` f32 to a rank that receives as many.
    ///
    /// # Safety
    /// As of [`Self::all_reduce_device`].
    ///
    /// # Errors
    /// As of [`Self::all_reduce_device`].
    pub unsafe fn send_device(&self, to: usize, address: u64, count: usize, stream: Stream) -> Result<(), Error> {
        let (to, at) = (self.other(to)?, address as *const c_void);
        // SAFETY: the caller's.
        let code = unsafe { (self.functions.send)(at, count, F32, to, self.communicator, stream) };
        self.settle("send", code)
    }

    /// Receives `count` f32 of a rank.
    ///
    /// # Safety
    /// As of [`Self::all_reduce_device`].
    ///
    /// # Errors
    /// As of [`Self::all_reduce_device`].
    pub unsafe fn receive_device(&self, from: usize, address: u64, count: usize, stream: Stream) -> Result<(), Error> {
        let (from, at) = (self.other(from)?, address as *mut c_void);
        // SAFETY: the caller's.
        let code = unsafe { (self.functions.receive)(at, count, F32, from, self.communicator, stream) };
        self.settle("receive", code)
    }

    /// Whether a call failed after it returned: because another rank or a connection is lost, for example. Who waits for a stream must
    /// look, because the stream then never ends.
    ///
    /// # Errors
    /// NCCL's.
    pub fn check(&self) -> Result<(), Error> {
        match self.state() {
            0 | IN_PROGRESS => Ok(()),
            code => Err(self.fail(self.functions.error(code))),
        }
    }

    fn other(&self, rank: usize) -> Result<c_int, Error> {
        match c_int::try_from(rank) {
            Ok(number) if rank < self.size => Ok(number),
            _ => Err(Error::Rank { rank, size: self.size }),
        }
    }

    fn state(&self) -> c_int {
        let mut state = 0;
        // SAFETY: the communicator exists, and the place lives through the call.
        match unsafe { (self.functions.async_error)(self.communicator, &mut state) } {
            0 => state,
            code => code,
        }
    }

    /// Waits until NCCL has accepted a call.
    fn settle(&self, operation: &'static str, code: c_int) -> Result<(), Error> {
        if self.communicator.is_null() {
            return Err(self.fail(self.functions.error(code)));
        }
        let (start, mut code) = (Instant::now(), code);
        while code == IN_PROGRESS {
            if start.elapsed() >= self.deadline {
                // NCCL does not say which rank is missing.
                let problem =
                    format!("no {operation} of all {} ranks within {} s", self.size, self.deadline.as_secs_f64());
                let remedy = "look for the error of the rank that is missing, and start again".into();
                return Err(self.fail(Error::Library { library: LIBRARY, problem, remedy }));
            }
            std::thread::sleep(NAP);
            code = self.state();
        }
        if code == 0 { Ok(()) } else { Err(self.fail(self.functions.error(code))) }
    }

    fn fail(&self, error: Error) -> Error {
        self.has_failed.store(true, Ordering::Relaxed);
        error
    }
}

impl Drop for Nccl {
    /// After an error the communicator is aborted, which also ends its work in streams.
    fn drop(&mut self) {
        if self.communicator.is_null() {
            return;
        }
        let in_order = !self.has_failed.load(Ordering::Relaxed) && {
            // SAFETY: the communicator exists.
            let code = unsafe { (self.functions.finalize)(self.communicator) };
            self.settle("end", code).is_ok()
        };
        let end = if in_order { self.functions.destroy } else { self.functions.abort };
        // SAFETY: the communicator is not used after.
        unsafe { end(self.communicator) };
    }
}

//! NCCL's groups, and a device as a rank of one.

#![allow(unsafe_code)]

use super::library::{
    Config, F32, Functions, Handle, ID_BYTES, IN_PROGRESS, LIBRARY, SUM, Stream, U8, UniqueId, text_of,
};
use crate::Error;
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A wait for NCCL to accept a call spins this long, because the next call of a step follows; then it sleeps between looks.
const SPIN: Duration = Duration::from_millis(1);
const NAP: Duration = Duration::from_micros(100);
/// How long the end of a communicator may take.
const FAREWELL: Duration = Duration::from_secs(5);

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
        let mut communicator = std::ptr::null_mut();
        // SAFETY: the places live through the call; NCCL copies the settings.
        let code = unsafe { (functions.init)(&mut communicator, ranks, UniqueId(group.0), its_rank, &mut config) };
        if communicator.is_null() {
            return Err(functions.error(code));
        }
        let state = Mutex::new(State { communicator, failure: None });
        let this = Nccl { functions, state, rank, size, deadline };
        this.settle("join", code, deadline)?;
        Ok(this)
    }
}

/// A CUDA device as a rank. Addresses are of that device.
#[derive(Debug)]
pub struct Nccl {
    functions: Arc<Functions>,
    state: Mutex<State>,
    rank: usize,
    size: usize,
    deadline: Duration,
}

/// A communicator until it ends. Invariant: NCCL gets it only while the lock is held and there is no failure; because an abort frees it,
/// and can come from another thread.
#[derive(Debug)]
struct State {
    communicator: Handle,
    failure: Option<Error>,
}

// SAFETY: a communicator may be used by any thread, one at a time, for which the lock cares.
unsafe impl Send for State {}

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
        self.call("all_reduce", |functions, communicator| unsafe {
            (functions.all_reduce)(at, at, count, F32, SUM, communicator, stream)
        })
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
        self.call("all_gather", |functions, communicator| unsafe {
            (functions.all_gather)(part, all, count, F32, communicator, stream)
        })
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
        self.call("broadcast", |functions, communicator| unsafe {
            (functions.broadcast)(at, at, bytes, U8, root, communicator, stream)
        })
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
        self.call("send", |functions, communicator| unsafe {
            (functions.send)(at, count, F32, to, communicator, stream)
        })
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
        self.call("receive", |functions, communicator| unsafe {
            (functions.receive)(at, count, F32, from, communicator, stream)
        })
    }

    /// Whether the communicator works: no call failed after it returned, because another rank or a connection is lost, for example.
    /// Who waits for a stream must look, because the stream then never ends.
    ///
    /// # Errors
    /// NCCL's.
    pub fn check(&self) -> Result<(), Error> {
        match self.look()? {
            0 | IN_PROGRESS => Ok(()),
            code => Err(self.fail(self.functions.error(code))),
        }
    }

    /// Ends the communicator from any thread: work of streams that waits for other ranks ends with arbitrary values, and each later
    /// call returns the reason.
    pub fn abort(&self, reason: &str) {
        let reason = Error::Lost { rank: self.rank, reason: reason.to_owned() };
        self.end(&mut self.lock(), reason);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn other(&self, rank: usize) -> Result<c_int, Error> {
        match c_int::try_from(rank) {
            Ok(number) if rank < self.size => Ok(number),
            _ => Err(Error::Rank { rank, size: self.size }),
        }
    }

    /// Makes a call, and waits until NCCL has accepted it.
    fn call(&self, operation: &'static str, call: impl FnOnce(&Functions, Handle) -> c_int) -> Result<(), Error> {
        let code = {
            let state = self.lock();
            state.failure.clone().map_or(Ok(()), Err)?;
            call(&self.functions, state.communicator)
        };
        self.settle(operation, code, self.deadline)
    }

    /// NCCL's state.
    fn look(&self) -> Result<c_int, Error> {
        let state = self.lock();
        state.failure.clone().map_or(Ok(()), Err)?;
        let mut code = 0;
        // SAFETY: the communicator exists, because there is no failure; the place lives through the call.
        Ok(match unsafe { (self.functions.async_error)(state.communicator, &mut code) } {
            0 => code,
            failure => failure,
        })
    }

    /// Waits until NCCL has accepted a call.
    fn settle(&self, operation: &'static str, mut code: c_int, deadline: Duration) -> Result<(), Error> {
        let start = Instant::now();
        while code == IN_PROGRESS {
            let waited = start.elapsed();
            if waited >= deadline {
                // NCCL does not say which rank is missing.
                let problem = format!("no {operation} of all {} ranks within {} s", self.size, deadline.as_secs_f64());
                let remedy = "look for the error of the rank that is missing, and start again".into();
                return Err(self.fail(Error::Library { library: LIBRARY, problem, remedy }));
            }
            if waited < SPIN {
                std::thread::yield_now()
            } else {
                std::thread::sleep(NAP)
            }
            code = self.look()?;
        }
        if code == 0 { Ok(()) } else { Err(self.fail(self.functions.error(code))) }
    }

    fn fail(&self, error: Error) -> Error {
        self.end(&mut self.lock(), error)
    }

    /// Aborts the communicator, unless it has ended, and returns why it ended.
    fn end(&self, state: &mut State, error: Error) -> Error {
        if state.failure.is_none() {
            // SAFETY: the communicator exists, and is not used after.
            unsafe { (self.functions.abort)(state.communicator) };
        }
        state.failure.get_or_insert(error).clone()
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if self.lock().failure.is_some() {
            return;
        }
        // SAFETY: as below.
        let finalize = |functions: &Functions, communicator| unsafe { (functions.finalize)(communicator) };
        let code = finalize(&self.functions, self.lock().communicator);
        if self.settle("end", code, FAREWELL).is_ok() {
            // SAFETY: the communicator has not ended, and is not used after.
            unsafe { (self.functions.destroy)(self.lock().communicator) };
        }
    }
}

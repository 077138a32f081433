//! The state of the CPU's backend.

use super::candidate::Candidate;
use super::level::Level;
use super::offload::readers::Readers;
use super::pool::Pool;
use super::profile::Profile;
use gristmill_kernels::Backend;
use gristmill_kernels::error::Result;
use gristmill_kernels::tensor::DeviceId;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// The device of the CPU's buffers.
pub(crate) const DEVICE: DeviceId = DeviceId::Cpu;

/// The kernels of the CPU.
#[derive(Debug)]
pub struct Cpu {
    pub(crate) level: Level,
    pub(crate) pool: Pool,
    /// Unused scratch of [`gristmill_kernels::ops::Sample`], kept so that a step does not allocate.
    pub(crate) candidates: Mutex<Vec<Vec<Candidate>>>,
    pub(crate) profile: Option<Arc<Profile>>,
    /// Threads that read experts from files, once a weight needs them.
    pub(crate) readers: Mutex<Option<Readers>>,
    /// Bytes of memory that may be used; `None` for what the system has.
    pub(crate) memory: Option<u64>,
    /// Bytes of all weights so far.
    pub(crate) prepared_bytes: AtomicU64,
}

impl Cpu {
    /// Kernels at a level with `threads` threads, including the caller's.
    pub fn new(level: Level, threads: usize) -> Result<Self> {
        Ok(Self {
            level,
            pool: Pool::new(threads)?,
            candidates: Mutex::default(),
            profile: None,
            readers: Mutex::default(),
            memory: None,
            prepared_bytes: AtomicU64::new(0),
        })
    }

    /// Reports this number of bytes, less those of prepared weights, as free memory ([`Backend::free_memory`]).
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// The kernels as a backend.
    pub fn backend(level: Level, threads: usize) -> Result<Backend> {
        Self::new(level, threads).map(Backend::new)
    }
}

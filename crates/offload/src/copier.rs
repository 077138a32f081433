//! Threads that copy groups of experts to areas of staging memory. They start in the order in which they were queued.

use crate::compute::HostLayer;
use gristmill_gpu::{Device, Region};
use gristmill_kernels::Backend;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::offload::HostMatrices;
use gristmill_kernels::ops::{Experts, Operation, PendingRead};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

/// Threads that copy. While one wakes up and starts, the other's copy runs: one thread reaches 36 GB/s of a link that does 52
/// (groups of 24 MB, H100).
const THREADS: usize = 2;

/// The areas, and the threads that fill them.
#[derive(Debug)]
pub(super) struct Copier {
    areas: Vec<Arc<Region>>,
    /// How many there should be.
    count: usize,
    /// Areas to copy to, each once the copy to the host is done that follows the kernels that read it.
    free: VecDeque<(usize, Option<Box<dyn PendingRead>>)>,
    /// The areas of the groups that were queued and not taken.
    queued: VecDeque<usize>,
    /// Areas whose copies were done before they were taken.
    early: Vec<(usize, Result<()>)>,
    jobs: Option<mpsc::Sender<Job>>,
    done: mpsc::Receiver<(usize, Result<()>)>,
    threads: Vec<JoinHandle<()>>,
}

/// A group to copy.
struct Job {
    layer: Arc<HostLayer>,
    matrices: [Arc<HostMatrices>; 2],
    group: Vec<usize>,
    /// The area's number, and its memory.
    at: usize,
    area: Arc<Region>,
    marker: Option<Box<dyn PendingRead>>,
}

impl Copier {
    /// Starts the threads, which copy to this number of areas.
    pub(super) fn start(host: &Arc<Backend>, count: usize) -> Result<Self> {
        let (jobs, next) = mpsc::channel::<Job>();
        let (copied, done) = mpsc::channel();
        let next = Arc::new(Mutex::new(next));
        let serve = || {
            let host = Arc::clone(host);
            let next = Arc::clone(&next);
            let copied = copied.clone();
            move || {
                // The other threads drop their ends when they stop.
                loop {
                    let job = next.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = job else { break };
                    if copied.send((job.at, job.copy(&host))).is_err() {
                        break;
                    }
                }
            }
        };
        let start = |_| thread::Builder::new().name("gristmill-stream".to_owned()).spawn(serve());
        let threads = (0..THREADS).map(start).collect::<std::io::Result<_>>();
        let threads = threads.map_err(|error| Error::Threads { threads: THREADS, reason: error.to_string() })?;
        let (areas, free, queued, early) = Default::default();
        Ok(Self { areas, count, free, queued, early, jobs: Some(jobs), done, threads })
    }

    /// Bytes of an area.
    pub(super) fn area_bytes(&self) -> usize {
        self.areas.first().map_or(0, |area| area.bytes())
    }

    /// Allocates areas of at least this size.
    pub(super) fn prepare(&mut self, device: &Device, bytes: usize) -> Result<()> {
        if self.area_bytes() >= bytes {
            return Ok(());
        }
        self.discard(device)?;
        self.areas.clear();
        self.free.clear();
        for area in 0..self.count {
            self.areas.push(Arc::new(Region::new(device.gpu(), bytes, "staging of experts")?));
            self.free.push_back((area, None));
        }
        Ok(())
    }

    /// Whether a group can be queued.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Queues a group of a layer, if an area is free.
    pub(super) fn queue(&mut self, layer: &Arc<HostLayer>, matrices: &[Arc<HostMatrices>; 2], group: Vec<usize>) {
        let (Some((at, marker)), Some(jobs)) = (self.free.pop_front(), &self.jobs) else { return };
        let layer = Arc::clone(layer);
        let matrices = matrices.clone();
        let area = Arc::clone(&self.areas[at]);
        // If the threads are gone, `take` reports it.
        let _ = jobs.send(Job { layer, matrices, group, at, area, marker });
        self.queued.push_back(at);
    }

    /// Waits for the copy that was queued first. Returns its area.
    pub(super) fn take(&mut self) -> Result<usize> {
        let gone = || Error::ForeignLayout { op: Experts::NAME, what: "staging memory" };
        let area = self.queued.pop_front().ok_or_else(gone)?;
        let copied = loop {
            if let Some(at) = self.early.iter().position(|(early, _)| *early == area) {
                break self.early.swap_remove(at).1;
            }
            match self.done.recv() {
                Ok(copied) => self.early.push(copied),
                Err(_) => break Err(gone()),
            }
        };
        if copied.is_err() {
            self.free.push_back((area, None));
        }
        copied.map(|()| area)
    }

    /// The memory of an area.
    pub(super) fn area(&self, area: usize) -> &Region {
        &self.areas[area]
    }

    /// Frees an area that was taken, once the marker, a copy to the host after the kernels that read the area, is done.
    pub(super) fn release(&mut self, area: usize, marker: Option<Box<dyn PendingRead>>) {
        self.free.push_back((area, marker));
    }

    /// Waits for all copies and for the kernels that read areas, and forgets the groups.
    pub(super) fn discard(&mut self, device: &Device) -> Result<()> {
        // Nobody reads what was copied.
        let early = self.early.drain(..).count();
        self.queued.drain(..).skip(early).for_each(|_| drop(self.done.recv()));
        self.free = (0..self.areas.len()).map(|area| (area, None)).collect();
        device.synchronize()
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.jobs = None;
        // The threads do not panic.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Job {
    fn copy(self, host: &Backend) -> Result<()> {
        let Self { layer, matrices, group, area, marker, .. } = self;
        marker.map(PendingRead::wait).transpose()?;
        let Some(slots) = &layer.slots else { return Ok(()) };
        let expert_of = layer.expert(&matrices);
        let mut pieces = Vec::with_capacity(6 * group.len());
        for (i, &expert) in group.iter().enumerate() {
            slots.pieces(host, expert, &expert_of, (&area, i * slots.staged_bytes()), &mut pieces)?;
        }
        Region::write_overlapped(&pieces)
    }
}

//! Threads that read experts from files, and what they have read.

use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::offload::SlotUsage;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Reads in flight, one for each thread. A thread waits for the disk and then arranges tiles, so some wait while others arrange.
pub const READERS: usize = 8;

type Read = Box<dyn FnOnce() + Send>;

/// Reads that wait for a thread, first in, first out.
#[derive(Default)]
struct Waiting {
    reads: VecDeque<Read>,
    is_stopped: bool,
}

/// Reads in flight, for the time in which there were some.
#[derive(Default)]
struct InFlight {
    reads: usize,
    since: Option<Instant>,
}

/// The reads of all weights of a backend.
#[derive(Default)]
pub(crate) struct ReadQueue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    in_flight: Mutex<InFlight>,
    hits: AtomicU64,
    misses: AtomicU64,
    insertions: AtomicU64,
    read_bytes: AtomicU64,
    read_nanoseconds: AtomicU64,
}

impl ReadQueue {
    /// Queues a read. Nothing happens after the threads have ended: then no product can wait for it.
    pub(crate) fn push(&self, read: Read) {
        lock(&self.waiting).reads.push_back(read);
        self.changed.notify_one();
    }

    /// Counts choices whose expert was in memory, and others.
    pub(crate) fn count_choices(&self, hits: u64, misses: u64) {
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.misses.fetch_add(misses, Ordering::Relaxed);
    }

    /// Counts a matrix that was read.
    pub(crate) fn count_read(&self, bytes: u64) {
        self.insertions.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn usage(&self) -> SlotUsage {
        let [hits, misses, insertions, read_bytes, read_nanoseconds] =
            [&self.hits, &self.misses, &self.insertions, &self.read_bytes, &self.read_nanoseconds]
                .map(|count| count.load(Ordering::Relaxed));
        SlotUsage { hits, misses, insertions, read_bytes, read_nanoseconds, ..SlotUsage::default() }
    }

    /// The loop of a thread.
    fn serve(&self) {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.is_stopped {
                return;
            }
            let Some(read) = waiting.reads.pop_front() else {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(waiting);
            self.timed(read);
            waiting = lock(&self.waiting);
        }
    }

    /// Runs a read, and adds up the time in which at least one is in flight.
    fn timed(&self, read: Read) {
        {
            let mut in_flight = lock(&self.in_flight);
            in_flight.reads += 1;
            in_flight.since.get_or_insert_with(Instant::now);
        }
        read();
        let mut in_flight = lock(&self.in_flight);
        in_flight.reads -= 1;
        if in_flight.reads == 0
            && let Some(since) = in_flight.since.take()
        {
            self.read_nanoseconds.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

/// The threads. Dropping them waits for the reads in flight and discards those that wait.
pub(crate) struct Readers {
    queue: Arc<ReadQueue>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn new() -> Result<Self> {
        let mut readers = Self { queue: Arc::default(), threads: Vec::new() };
        for number in 0..READERS {
            let queue = Arc::clone(&readers.queue);
            let thread = std::thread::Builder::new()
                .name(format!("gristmill-read-{number}"))
                .spawn(move || queue.serve())
                .map_err(|error| Error::Threads { threads: READERS, reason: error.to_string() })?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    pub(crate) fn queue(&self) -> &Arc<ReadQueue> {
        &self.queue
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        let discarded = {
            let mut waiting = lock(&self.queue.waiting);
            waiting.is_stopped = true;
            std::mem::take(&mut waiting.reads)
        };
        // A read owns its weight, whose memory is not freed under the lock.
        drop(discarded);
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A read catches its panics.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readers({} threads)", self.threads.len())
    }
}

/// Locks even if a panic poisoned the mutex: the guarded values are always valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

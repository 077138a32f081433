//! The thread pool. A job is a number of chunks that threads claim dynamically.
//!
//! Threads spin briefly and then park. Operations follow each other within microseconds, so a parked thread would wake
//! too late. Pure spinning collapses when cores are shared. The caller waits only for workers that take part. A job is
//! *open* while it has unclaimed chunks, and a worker must *enter* it. The caller closes the job and returns when every
//! worker inside has left.
//!
//! # Threads take chunks dynamically
//!
//! The pool spins for about 50 µs, then parks. No thread waits for a thread that has not started. *Chunks write
//! disjoint outputs, and no sum is split between threads.*
//!
//! If there are fewer free cores than threads, the thread that is waited for may need the core of the one that waits. So a
//! waiting thread yields its core every 1.4 µs (docs/performance-notes.md has measurements).
//!
//! A job is cut into *shares* of consecutive chunks. A thread claims chunks of its own share, then those that are left in
//! the others. So a thread reads consecutive weights, and what it prefetches past the end of a chunk is its next chunk.
//! Fewer threads also write to the same counter.

#![allow(unsafe_code)]

use gristmill_kernels::error::{Error, Result};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The maximum number of threads in a pool.
pub const MAX_THREADS: usize = 1024;

/// How long a thread polls before it parks: far more than the gap between two operations.
const POLLING: Duration = Duration::from_micros(50);
/// Polls before a thread yields its core, if another thread waits for the core: 1.4 µs (Zen 5).
const POLLS: u32 = 64;

/// The low bits of [`PoolState::state`] count the workers inside the job. This bit marks the job as open. The remaining
/// bits are the job's number.
const OPEN: u64 = 1 << 15;
const INSIDE: u64 = OPEN - 1;
const NUMBER: u64 = 1 << 16;

/// The most shares of a job. If there are more threads, several start in one share: a thread that finds no chunk has read the
/// counters of all shares.
const MAX_SHARES: usize = 8;

type Work = dyn Fn(usize) + Sync;

/// The order in which threads claim the chunks of a job.
#[derive(Clone, Copy)]
pub(crate) enum ChunkOrder {
    /// Each thread starts in a share of its own.
    ByShare,
    /// No chunk is claimed before a chunk with a lower number.
    Ascending,
}

#[derive(Clone, Copy)]
struct PoolJob {
    work: *const Work,
    chunks: usize,
    shares: usize,
}

impl PoolJob {
    /// The chunks of a share.
    fn share(&self, share: usize) -> Range<usize> {
        let start = |share: usize| self.chunks / self.shares * share + share.min(self.chunks % self.shares);
        start(share)..start(share + 1)
    }
}

/// The next chunk of a share, on cache lines of its own: processors fetch lines in pairs.
#[repr(align(128))]
struct NextChunk(AtomicUsize);

struct PoolState {
    threads: usize,
    state: AtomicU64,
    next: [NextChunk; MAX_SHARES],
    job: UnsafeCell<PoolJob>,
    caller: Mutex<Option<Thread>>,
    sleepers: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    /// Idle threads do not park.
    awake: AtomicBool,
    clocks: OnceLock<Vec<AtomicU64>>,
}

// SAFETY: `job` is written by the caller only while no worker is inside (the job is closed and `state` counts none),
// and read by workers only while inside; entering and leaving are acquire and release operations on `state`.
unsafe impl Sync for PoolState {}
// SAFETY: as above; the pointer in `job` is to a `Sync` closure.
unsafe impl Send for PoolState {}

/// Worker threads that run jobs together with the calling thread.
pub struct Pool {
    shared: Arc<PoolState>,
    job_lock: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads, including the caller's.
    pub fn new(threads: usize) -> Result<Self> {
        if threads == 0 || threads > MAX_THREADS {
            return Err(Error::Threads { threads, reason: format!("must be 1 to {MAX_THREADS}") });
        }
        fn nothing(_: usize) {}
        let shared = Arc::new(PoolState {
            threads,
            state: AtomicU64::new(0),
            next: [const { NextChunk(AtomicUsize::new(0)) }; MAX_SHARES],
            job: UnsafeCell::new(PoolJob { work: &nothing as *const Work, chunks: 0, shares: 1 }),
            caller: Mutex::new(None),
            sleepers: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            awake: AtomicBool::new(false),
            clocks: OnceLock::new(),
        });
        let mut pool = Self { shared, job_lock: Mutex::new(()), workers: Vec::new() };
        for i in 1..threads {
            let shared = pool.shared.clone();
            let worker = std::thread::Builder::new()
                .name(format!("gristmill-{i}"))
                .spawn(move || shared.serve(i))
                .map_err(|e| Error::Threads { threads, reason: e.to_string() })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Number of threads, including the caller's.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Whether idle threads keep polling instead of parking.
    pub(crate) fn stay_awake(&self, on: bool) {
        self.shared.awake.store(on, Ordering::SeqCst);
        if on {
            self.workers.iter().for_each(|worker| worker.thread().unpark());
        }
    }

    /// Measures the threads from now on.
    pub(crate) fn measure(&self) {
        self.shared.clocks.get_or_init(|| (0..self.threads()).map(|_| AtomicU64::new(0)).collect());
    }

    /// The time that the caller's thread waited for workers, followed by each worker's busy time. Empty without
    /// [`Pool::measure`].
    pub(crate) fn clocks(&self) -> Vec<Duration> {
        let clocks = self.shared.clocks.get().map_or(&[][..], Vec::as_slice);
        clocks.iter().map(|clock| Duration::from_nanos(clock.load(Ordering::Relaxed))).collect()
    }

    /// Calls `work(0)` … `work(chunks - 1)` once each, on all threads, and returns when all calls are done. Jobs of
    /// several callers run one after another. If a chunk panics, the panic resumes in the caller after all threads have
    /// left the job.
    ///
    /// Must not be called from within a chunk: that would deadlock.
    pub fn run(&self, chunks: usize, work: &(dyn Fn(usize) + Sync)) {
        self.run_ordered(ChunkOrder::ByShare, chunks, work);
    }

    /// [`Pool::run`] with an order of the chunks.
    pub(crate) fn run_ordered(&self, order: ChunkOrder, chunks: usize, work: &(dyn Fn(usize) + Sync)) {
        let shares = match order {
            ChunkOrder::ByShare => self.threads().min(MAX_SHARES),
            ChunkOrder::Ascending => 1,
        };
        if self.workers.is_empty() || chunks <= 1 {
            return (0..chunks).for_each(work);
        }
        let job_lock = lock(&self.job_lock);
        let shared = &*self.shared;
        *lock(&shared.caller) = Some(std::thread::current());
        // SAFETY: only lengthens the lifetime. `close` below returns, also when this thread's own chunk panics, only
        // after the job is closed and no worker is inside, and no worker can enter a closed job.
        let work = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const Work>(work) };
        let job = PoolJob { work, chunks, shares };
        // SAFETY: `job_lock` is held and the job is closed with no worker inside, so no one else touches the cell.
        unsafe { *shared.job.get() = job };
        for share in 0..shares {
            shared.next[share].0.store(job.share(share).start, Ordering::Relaxed);
        }
        let number = shared.state.load(Ordering::Relaxed) / NUMBER + 1;
        shared.state.store(number * NUMBER | OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            self.workers.iter().for_each(|w| w.thread().unpark());
        }
        // SAFETY: the closure outlives this call.
        let mine = catch_unwind(AssertUnwindSafe(|| unsafe { shared.take_chunks(0, job) }));
        shared.timed(0, || shared.close());
        let theirs = shared.panicked.swap(false, Ordering::Relaxed);
        drop(job_lock);
        match mine {
            Err(panic) => resume_unwind(panic),
            Ok(()) if theirs => panic!("a worker thread panicked in a kernel"),
            Ok(()) => {}
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker can only panic inside a chunk, and those panics are caught.
            let _ = worker.join();
        }
    }
}

impl PoolState {
    /// Runs `work`, and adds its time to the thread's clock if the pool is measured.
    fn timed(&self, thread: usize, work: impl FnOnce()) {
        let Some(clocks) = self.clocks.get() else { return work() };
        let begun = Instant::now();
        work();
        // The release when the thread leaves the job makes the sum visible to the caller.
        clocks[thread].fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// Works on chunks until all are claimed: first those of the thread's own share, then those of the next shares.
    ///
    /// # Safety
    /// The job's closure must live.
    unsafe fn take_chunks(&self, thread: usize, job: PoolJob) {
        // SAFETY: the caller's promise.
        let work = unsafe { &*job.work };
        let own = thread * job.shares / self.threads;
        for share in (own..job.shares).chain(0..own) {
            let end = job.share(share).end;
            let next = &self.next[share].0;
            // The read finds a finished share without taking its cache line from other threads.
            while next.load(Ordering::Relaxed) < end {
                let chunk = next.fetch_add(1, Ordering::Relaxed);
                if chunk < end {
                    work(chunk);
                }
            }
        }
    }

    /// Closes the job and waits until all workers have left it.
    fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut wait = Wait::default();
        while self.state.load(Ordering::Acquire) & INSIDE != 0 {
            wait.poll(|| std::thread::park_timeout(Duration::from_millis(1)));
        }
    }

    /// A worker's loop.
    fn serve(&self, thread: usize) {
        let mut seen = 0;
        let mut wait = Wait::default();
        while !self.stop.load(Ordering::SeqCst) {
            let state = self.state.load(Ordering::SeqCst);
            let number = state / NUMBER;
            if number == seen || state & OPEN == 0 {
                if self.awake.load(Ordering::Relaxed) {
                    wait = Wait::default();
                }
                wait.poll(|| self.sleep(seen));
                continue;
            }
            if self.state.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            seen = number;
            wait = Wait::default();
            // SAFETY: this worker is inside the open job, so the caller does not touch the cell.
            let job = unsafe { *self.job.get() };
            self.timed(thread, || {
                // SAFETY: the closure lives until this worker leaves the job.
                if catch_unwind(AssertUnwindSafe(|| unsafe { self.take_chunks(thread, job) })).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
            });
            let left = self.state.fetch_sub(1, Ordering::AcqRel);
            if left & INSIDE == 1
                && left & OPEN == 0
                && let Some(caller) = &*lock(&self.caller)
            {
                caller.unpark();
            }
        }
    }

    /// Parks until a job newer than `seen` may be open or the pool stops.
    fn sleep(&self, seen: u64) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let state = self.state.load(Ordering::SeqCst);
        let idle = state / NUMBER == seen || state & OPEN == 0;
        if idle && !self.stop.load(Ordering::SeqCst) {
            std::thread::park();
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The wait for a change that another thread makes.
#[derive(Default)]
struct Wait {
    polls: u32,
    started_at: Option<Instant>,
}

impl Wait {
    /// Called after each poll without a change. Parks once the wait has taken [`POLLING`].
    fn poll(&mut self, park: impl FnOnce()) {
        self.polls += 1;
        if self.polls < POLLS {
            return std::hint::spin_loop();
        }
        self.polls = 0;
        // By the clock: a thread that shares its core polls for less of the time, and the instruction takes 20 to 140 cycles.
        if self.started_at.get_or_insert_with(Instant::now).elapsed() < POLLING {
            std::thread::yield_now();
        } else {
            park();
        }
    }
}

/// Locks even if a panic poisoned the mutex: the guarded values are always valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_runs_once() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads).unwrap();
            for chunks in [0, 1, 2, 7, 1000] {
                let runs: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(chunks, &|i| {
                    runs[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(runs.iter().all(|n| n.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn shares_cover_all_chunks() {
        fn nothing(_: usize) {}
        for (chunks, shares) in [(0, 1), (1, 1), (2, 8), (7, 3), (64, 8), (usize::MAX, 8)] {
            let job = PoolJob { work: &nothing as *const Work, chunks, shares };
            let ranges: Vec<Range<usize>> = (0..shares).map(|share| job.share(share)).collect();
            assert_eq!((ranges[0].start, ranges[shares - 1].end), (0, chunks));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
            assert!(ranges.iter().all(|range| range.len() - chunks / shares <= 1), "{ranges:?}");
        }
    }

    #[test]
    fn threads_start_in_their_own_shares_and_then_take_from_others() {
        let pool = Pool::new(2).unwrap();
        let caller = std::thread::current().id();
        let started = std::sync::Barrier::new(2);
        let (by_caller, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
        pool.run(20, &|chunk| {
            if std::thread::current().id() == caller {
                by_caller.fetch_add(1 << chunk, Ordering::SeqCst);
                if chunk == 0 {
                    started.wait();
                }
                return;
            }
            others.fetch_add(1 << chunk, Ordering::SeqCst);
            if chunk == 10 {
                started.wait();
                while by_caller.load(Ordering::SeqCst) != (1 << 20) - 1 - (1 << 10) {
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!((others.into_inner(), by_caller.into_inner()), (1 << 10, (1 << 20) - 1 - (1 << 10)));
    }

    #[test]
    fn chunks_in_order_start_in_order() {
        let pool = Pool::new(4).unwrap();
        let last: Mutex<Vec<(std::thread::ThreadId, usize)>> = Mutex::default();
        for _ in 0..50 {
            pool.run_ordered(ChunkOrder::Ascending, 64, &|chunk| {
                lock(&last).push((std::thread::current().id(), chunk))
            });
            let seen = std::mem::take(&mut *lock(&last));
            for thread in seen.iter().map(|(thread, _)| thread) {
                let own: Vec<usize> = seen.iter().filter(|(id, _)| id == thread).map(|(_, chunk)| *chunk).collect();
                assert!(own.is_sorted(), "{own:?}");
            }
        }
    }

    #[test]
    fn callers_take_turns() {
        let pool = Pool::new(3).unwrap();
        let sum = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..200 {
                        pool.run(5, &|i| {
                            sum.fetch_add(i, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 200 * 10);
    }

    #[test]
    fn a_parked_pool_wakes() {
        let pool = Pool::new(2).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            // The first chunk waits for the second, so a worker must have woken.
            let second = AtomicBool::new(false);
            pool.run(2, &|i| match i {
                0 => {
                    while !second.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                }
                _ => second.store(true, Ordering::SeqCst),
            });
        }
    }

    /// Waits until this number of threads is parked.
    fn parked(pool: &Pool, threads: usize) -> bool {
        let start = Instant::now();
        while pool.shared.sleepers.load(Ordering::SeqCst) != threads && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        pool.shared.sleepers.load(Ordering::SeqCst) == threads
    }

    #[test]
    fn a_wait_polls_for_its_time_and_then_parks() {
        let start = Instant::now();
        let (mut wait, mut parks) = (Wait::default(), 0);
        while parks < 3 {
            wait.poll(|| parks += 1);
            assert!(parks == 0 || start.elapsed() >= POLLING);
        }
    }

    #[test]
    fn threads_stay_awake_as_long_as_they_must() {
        let pool = Pool::new(3).unwrap();
        assert!(parked(&pool, 2));
        pool.stay_awake(true);
        assert!(parked(&pool, 0));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(pool.shared.sleepers.load(Ordering::SeqCst), 0);
        pool.stay_awake(false);
        assert!(parked(&pool, 2));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(4).unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(64, &|i| {
                if i % 2 == 1 {
                    panic!("planned")
                }
            });
        }));
        assert!(result.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(10, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 45);
    }

    #[test]
    fn clocks_count_work_and_waiting() {
        let pool = Pool::new(2).unwrap();
        let chunk = Duration::from_millis(20);
        assert!(pool.clocks().is_empty());
        pool.measure();
        // Both threads take a chunk, the first of them a short one.
        let both = std::sync::Barrier::new(2);
        let caller = std::thread::current().id();
        pool.run(2, &|_| {
            both.wait();
            if std::thread::current().id() != caller {
                std::thread::sleep(chunk);
            }
        });
        let clocks = pool.clocks();
        assert!(clocks[0] >= chunk / 2 && clocks[1] >= chunk, "{clocks:?}");
    }

    #[test]
    fn thread_counts_are_checked() {
        assert!(matches!(Pool::new(0), Err(Error::Threads { threads: 0, .. })));
        assert!(matches!(Pool::new(10_000), Err(Error::Threads { .. })));
    }
}

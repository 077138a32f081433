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

#![allow(unsafe_code)]

use gristmill_kernels::error::{Error, Result};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The maximum number of threads in a pool.
pub const MAX_THREADS: usize = 1024;

/// Spin iterations before a thread parks: about 50 µs, far more than the gap between two operations.
const SPINS: u32 = 2_000;

/// The low bits of [`PoolState::state`] count the workers inside the job. This bit marks the job as open. The remaining
/// bits are the job's number.
const OPEN: u64 = 1 << 15;
const INSIDE: u64 = OPEN - 1;
const NUMBER: u64 = 1 << 16;

type Work = dyn Fn(usize) + Sync;

struct PoolJob {
    work: *const Work,
    chunks: usize,
}

struct PoolState {
    state: AtomicU64,
    next: AtomicUsize,
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
            state: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            job: UnsafeCell::new(PoolJob { work: &nothing as *const Work, chunks: 0 }),
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
        if self.workers.is_empty() || chunks <= 1 {
            return (0..chunks).for_each(work);
        }
        let job_lock = lock(&self.job_lock);
        let shared = &*self.shared;
        *lock(&shared.caller) = Some(std::thread::current());
        // SAFETY: only lengthens the lifetime. `close` below returns, also when this thread's own chunk panics, only
        // after the job is closed and no worker is inside, and no worker can enter a closed job.
        let work = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const Work>(work) };
        // SAFETY: `job_lock` is held and the job is closed with no worker inside, so no one else touches the cell.
        unsafe { *shared.job.get() = PoolJob { work, chunks } };
        shared.next.store(0, Ordering::Relaxed);
        let number = shared.state.load(Ordering::Relaxed) / NUMBER + 1;
        shared.state.store(number * NUMBER | OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            self.workers.iter().for_each(|w| w.thread().unpark());
        }
        // SAFETY: the closure outlives this call.
        let mine = catch_unwind(AssertUnwindSafe(|| shared.take_chunks(unsafe { &*work }, chunks)));
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

    fn take_chunks(&self, work: &Work, chunks: usize) {
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                return;
            }
            work(chunk);
        }
    }

    /// Closes the job and waits until all workers have left it.
    fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        while self.state.load(Ordering::Acquire) & INSIDE != 0 {
            wait(&mut spins, || std::thread::park_timeout(std::time::Duration::from_millis(1)));
        }
    }

    /// A worker's loop.
    fn serve(&self, thread: usize) {
        let mut seen = 0;
        let mut spins = 0;
        while !self.stop.load(Ordering::SeqCst) {
            let state = self.state.load(Ordering::SeqCst);
            let number = state / NUMBER;
            if number == seen || state & OPEN == 0 {
                if self.awake.load(Ordering::Relaxed) {
                    spins = 0;
                }
                wait(&mut spins, || self.sleep(seen));
                continue;
            }
            if self.state.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            seen = number;
            spins = 0;
            // SAFETY: this worker is inside the open job, so the caller does not touch the cell, and the closure lives.
            let (work, chunks) = unsafe { (&*(*self.job.get()).work, (*self.job.get()).chunks) };
            self.timed(thread, || {
                if catch_unwind(AssertUnwindSafe(|| self.take_chunks(work, chunks))).is_err() {
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

/// Spins, then calls `park`.
fn wait(spins: &mut u32, park: impl FnOnce()) {
    if *spins < SPINS {
        *spins += 1;
        std::hint::spin_loop();
    } else {
        park();
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

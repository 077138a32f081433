//! The machine's limits: bytes read from memory per second, and int8 operations per second.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use gristmill_cpu::Level;
use gristmill_engine::Model;
use gristmill_engine::machine::available_memory;
use gristmill_kernels::ops::Rates;
use gristmill_kernels::simd::{Kernel, Simd};
use serde::Serialize;

use crate::error::LabError;

/// Bytes of the buffers of all threads, far more than any cache.
const BUFFER: u64 = 2 << 30;
/// Passes over the buffers; the fastest counts.
const PASSES: usize = 6;
/// Length and number of the timed runs of integer products.
const SLICE: Duration = Duration::from_millis(50);
const SLICES: usize = 6;

/// Measured rates.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Machine {
    /// The CPU level of both measurements, or `cuda`.
    pub level: &'static str,
    /// Bytes per second read from memory by all threads.
    pub read_bytes_per_second: f64,
    /// Type of the multiplied numbers: `int8`, or `bf16` on a GPU.
    pub numbers: &'static str,
    /// Operations per second of all threads on those numbers; a multiplication and an addition are two.
    pub ops_per_second: f64,
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (read, ops) = (self.read_bytes_per_second / 1e9, self.ops_per_second / 1e9);
        write!(f, "machine: reads {read:.1} GB/s, {ops:.0} {} Gop/s ({})", self.numbers, self.level)
    }
}

/// The rates of the model's device: as reported by the device, or measured on the CPU, at its best level unless another
/// is given, with this many threads.
pub fn of(model: &Model, level: Option<Level>, threads: usize) -> Result<Machine, LabError> {
    Ok(match model.rates()? {
        Some(Rates { read_bytes_per_second, ops_per_second }) => {
            Machine { level: "cuda", read_bytes_per_second, numbers: "bf16", ops_per_second }
        }
        None => measure(level.unwrap_or_else(Level::best), threads),
    })
}

/// Measures with this many threads; takes about two seconds.
pub fn measure(level: Level, threads: usize) -> Machine {
    measure_with(level, threads, buffer())
}

/// Bytes per second that this many threads read from memory; takes a second.
pub fn memory_rate(level: Level, threads: usize) -> f64 {
    read_rate(level, threads, buffer() as usize / threads)
}

/// Bytes of the buffers, at most a quarter of the free memory.
fn buffer() -> u64 {
    available_memory().map_or(BUFFER, |free| BUFFER.min(free / 4))
}

/// The same as [`measure`], with buffers of `buffer` bytes in all.
pub(crate) fn measure_with(level: Level, threads: usize, buffer: u64) -> Machine {
    Machine {
        level: level.name(),
        read_bytes_per_second: read_rate(level, threads, buffer as usize / threads),
        numbers: "int8",
        ops_per_second: int8_rate(level, threads),
    }
}

/// Runs `work` on all threads at once. Returns the summed amounts per second of the best round.
fn best_round<W: FnMut() -> f64>(threads: usize, rounds: usize, make: impl Fn() -> W + Sync) -> f64 {
    let start = Barrier::new(threads);
    let worker = || {
        let mut work = make();
        (0..rounds)
            .map(|_| {
                start.wait();
                let started = Instant::now();
                let amount = work();
                (amount, started.elapsed().as_secs_f64())
            })
            .collect::<Vec<_>>()
    };
    let results: Vec<Vec<(f64, f64)>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let round = |i: usize| {
        // The slowest thread determines the time of a round.
        let amount: f64 = results.iter().map(|rounds| rounds[i].0).sum();
        amount / results.iter().map(|rounds| rounds[i].1).fold(f64::MIN_POSITIVE, f64::max)
    };
    (0..rounds).map(round).fold(0.0, f64::max)
}

fn read_rate(level: Level, threads: usize, bytes: usize) -> f64 {
    best_round(threads, PASSES, || {
        // The reading thread writes the buffer first, so the system allocates it in that thread's NUMA node.
        let buffer = vec![1; bytes.max(1 << 20)];
        move || {
            let aligned = &buffer[buffer.as_ptr().align_offset(64)..];
            black_box(level.run(Sum(aligned)));
            aligned.len() as f64
        }
    })
}

/// Adds up a buffer as 32-bit words.
struct Sum<'a>(&'a [u8]);

impl Kernel for Sum<'_> {
    type Output = [f32; 16];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; 16] {
        let mut sums = [s.splat_i32(0); 4];
        for chunk in self.0.chunks_exact(256) {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = s.add_i32(*sum, s.load_i32(chunk, 64 * i));
            }
        }
        let [a, b, c, d] = sums;
        s.to_array(s.to_f32(s.add_i32(s.add_i32(a, b), s.add_i32(c, d))))
    }
}

fn int8_rate(level: Level, threads: usize) -> f64 {
    // The fastest number of independent sums depends on the number of registers.
    let few = best_round(threads, SLICES, || move || timed(|| black_box(level.run(Products::<4>))));
    let many = best_round(threads, SLICES, || move || timed(|| black_box(level.run(Products::<8>))));
    few.max(many)
}

/// Repeats `work` for [`SLICE`] and sums the returned numbers of operations.
fn timed(mut work: impl FnMut() -> f64) -> f64 {
    let started = Instant::now();
    let mut done = 0.0;
    while started.elapsed() < SLICE {
        done += work();
    }
    done
}

/// Integer dot products from registers, into `N` independent sums.
struct Products<const N: usize>;

impl<const N: usize> Kernel for Products<N> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        const ROUNDS: i32 = 10_000;
        let codes = s.splat_codes(black_box(3));
        let mut sums = [s.splat_i32(0); N];
        for x in 0..ROUNDS {
            for sum in &mut sums {
                *sum = s.dot(*sum, codes, x);
            }
        }
        black_box(sums.map(|sum| s.to_array(s.to_f32(sum))));
        // 16 rows × 4 multiplications and additions.
        f64::from(ROUNDS) * N as f64 * 128.0
    }
}

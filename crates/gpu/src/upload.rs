//! Bytes on their way to a device: threads make pieces in host memory, while the device copies earlier ones.

use crate::device_api::Gpu;
use gristmill_kernels::error::Result;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Makes the bytes from an offset on.
pub type Make<'a> = dyn Fn(usize, &mut [u8]) + Sync + 'a;

/// Host memory for a piece.
pub trait Stage: Send {
    /// At least `bytes` bytes that no copy reads: waits for the last copy. Their content is arbitrary.
    fn memory(&mut self, bytes: usize) -> Result<&mut [u8]>;
    /// Starts to copy the first `bytes` of them to device memory.
    fn submit(&mut self, address: u64, bytes: usize) -> Result<()>;
}

/// Most threads that make pieces: more are not faster than the link to the device.
const MOST_THREADS: usize = 16;
/// Pieces that are worth a thread.
const PIECES_OF_THREAD: usize = 2;
/// Stages of a thread. It fills one while the device copies the other.
const STAGES: usize = 2;

/// Fills `bytes` of device memory from an address on, `piece` bytes at a time. Each thread takes its stages by `take`, and
/// returns them by `give_back`, possibly while the device still copies them. After an error the content is arbitrary.
pub fn fill<S: Stage>(
    address: u64,
    bytes: usize,
    piece: usize,
    make: &Make,
    take: impl Fn() -> Result<S> + Sync,
    give_back: impl Fn(S) + Sync,
) -> Result<()> {
    let piece = piece.max(1);
    let next = AtomicUsize::new(0);
    let has_failed = AtomicBool::new(false);
    let pieces = bytes.div_ceil(piece);
    let one = |stages: &mut Vec<S>, turn: usize, number: usize| {
        if stages.len() < STAGES {
            stages.push(take()?);
        }
        let count = stages.len();
        let start = number * piece;
        let stage = &mut stages[turn % count];
        let bytes = piece.min(bytes - start);
        make(start, &mut stage.memory(bytes)?[..bytes]);
        stage.submit(address + start as u64, bytes)
    };
    let work = || {
        let mut stages = Vec::new();
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&it| it < pieces));
        let outcome = numbers.enumerate().try_for_each(|(turn, number)| match has_failed.load(Ordering::Relaxed) {
            true => Ok(()),
            false => one(&mut stages, turn, number),
        });
        if outcome.is_err() {
            has_failed.store(true, Ordering::Relaxed);
        }
        stages.into_iter().for_each(&give_back);
        outcome
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    match threads.min(pieces / PIECES_OF_THREAD) {
        0 | 1 => work(),
        threads => thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let outcomes = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
            // All threads are joined, also after an error.
            outcomes.collect::<Vec<_>>().into_iter().collect()
        }),
    }
}

/// A stage for devices whose copies end before [`Gpu::write`] returns.
pub(crate) struct Written<'a, G: ?Sized> {
    gpu: &'a G,
    memory: Vec<u8>,
}

impl<'a, G: ?Sized> Written<'a, G> {
    pub(crate) fn new(gpu: &'a G) -> Self {
        Self { gpu, memory: Vec::new() }
    }
}

impl<G: Gpu + ?Sized> Stage for Written<'_, G> {
    fn memory(&mut self, bytes: usize) -> Result<&mut [u8]> {
        if self.memory.len() < bytes {
            self.memory.resize(bytes, 0);
        }
        Ok(&mut self.memory)
    }

    fn submit(&mut self, address: u64, bytes: usize) -> Result<()> {
        self.gpu.write(address, &self.memory[..bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_kernels::error::Error;
    use std::sync::Mutex;

    /// A device that copies as late as it may: when a stage is used again, or at the end.
    #[derive(Default)]
    struct Late {
        memory: Mutex<Vec<u8>>,
        /// Stages that are free, and how many were made.
        free: Mutex<(Vec<LateStage>, usize)>,
        fails_at: Option<u64>,
    }

    #[derive(Default)]
    struct LateStage {
        memory: Vec<u8>,
        in_flight: Option<(usize, usize)>,
    }

    struct Taken<'a>(&'a Late, LateStage);

    impl LateStage {
        fn arrive(&mut self, device: &Late) {
            if let Some((address, bytes)) = self.in_flight.take() {
                device.memory.lock().unwrap()[address..address + bytes].copy_from_slice(&self.memory[..bytes]);
            }
        }
    }

    impl Stage for Taken<'_> {
        fn memory(&mut self, bytes: usize) -> Result<&mut [u8]> {
            self.1.arrive(self.0);
            self.1.memory.resize(bytes.max(self.1.memory.len()), 0xee);
            Ok(&mut self.1.memory)
        }

        fn submit(&mut self, address: u64, bytes: usize) -> Result<()> {
            assert_eq!(self.1.in_flight, None);
            if self.0.fails_at == Some(address) {
                return Err(Error::OutOfMemory { what: "a piece", bytes });
            }
            self.1.in_flight = Some((address as usize, bytes));
            Ok(())
        }
    }

    impl Late {
        fn fill(&self, address: u64, bytes: usize, piece: usize) -> Result<()> {
            let make = |start: usize, part: &mut [u8]| {
                part.iter_mut().zip(start..).for_each(|(byte, at)| *byte = (at * 7 + at / 251) as u8);
            };
            let take = || {
                let mut free = self.free.lock().unwrap();
                free.1 += usize::from(free.0.is_empty());
                Ok(Taken(self, free.0.pop().unwrap_or_default()))
            };
            fill(address, bytes, piece, &make, take, |Taken(_, stage)| self.free.lock().unwrap().0.push(stage))
        }

        fn finish(&self) {
            let stages = std::mem::take(&mut self.free.lock().unwrap().0);
            stages.into_iter().for_each(|mut stage| stage.arrive(self));
        }
    }

    #[test]
    fn every_byte_arrives_once() {
        for (bytes, piece) in [(0, 16), (1, 16), (16, 16), (17, 16), (1_000, 7), (4_096, 64), (100_003, 1_000), (5, 0)]
        {
            let device = Late { memory: Mutex::new(vec![0xaa; bytes + 20]), ..Late::default() };
            device.fill(10, bytes, piece).unwrap();
            device.finish();
            let memory = device.memory.lock().unwrap();
            assert!(memory[..10].iter().chain(&memory[10 + bytes..]).all(|&byte| byte == 0xaa), "{bytes} {piece}");
            assert!(memory[10..10 + bytes].iter().enumerate().all(|(at, &byte)| byte == (at * 7 + at / 251) as u8));
            assert!(device.free.lock().unwrap().1 <= MOST_THREADS * STAGES);
        }
    }

    #[test]
    fn stages_are_used_again() {
        let device = Late { memory: Mutex::new(vec![0; 1 << 16]), ..Late::default() };
        (0..50).for_each(|_| device.fill(0, 1 << 16, 1 << 12).unwrap());
        assert!(device.free.lock().unwrap().1 <= MOST_THREADS * STAGES);
    }

    #[test]
    fn an_error_ends_all_threads() {
        let device = Late { memory: Mutex::new(vec![0; 1 << 16]), fails_at: Some(5 << 10), ..Late::default() };
        assert!(matches!(device.fill(0, 1 << 16, 1 << 10), Err(Error::OutOfMemory { .. })));
        let (free, made) = &*device.free.lock().unwrap();
        assert_eq!(free.len(), *made, "all stages are given back");
    }
}

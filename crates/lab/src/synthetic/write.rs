//! Writes a model's file with several threads.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use gristmill_files::gguf::{DEFAULT_ALIGNMENT, GgufWriter, WriteError, write_atomically};

use super::blocks::{Pool, run_bytes};
use super::error::SyntheticError;
use super::shapes::TensorPlan;

/// Runs of one job: about 16 MiB.
const RUNS: u64 = 1 << 16;

/// Consecutive bytes of a file, and what they are.
pub(super) struct Slice<T> {
    pub(super) offset: u64,
    pub(super) bytes: usize,
    pub(super) what: T,
}

/// Some runs of a tensor.
struct TensorRuns {
    tensor: usize,
    first: u64,
}

/// The pool of the tensor that a thread fills.
pub(super) struct LastPool<'a> {
    tensors: &'a [TensorPlan],
    last: Option<(usize, Pool)>,
}

impl LastPool<'_> {
    pub(super) fn get(&mut self, tensor: usize) -> &Pool {
        let (_, pool) = match self.last.take() {
            Some(last) if last.0 == tensor => self.last.insert(last),
            _ => self.last.insert((tensor, Pool::new(&self.tensors[tensor]))),
        };
        pool
    }
}

/// Takes the bytes written and the size of the file, from several threads.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) -> ControlFlow<()> + Sync);

pub(super) fn write(
    path: &Path,
    tensors: &[TensorPlan],
    file: GgufWriter,
    progress: Progress<'_>,
) -> Result<(), SyntheticError> {
    let total = file.file_bytes();
    let mut header = Vec::new();
    file.begin(&mut header)?;
    let slices = slices(tensors, header.len() as u64);
    let make = |runs: &TensorRuns, pool: &mut LastPool, out: &mut [u8]| pool.get(runs.tensor).fill(runs.first, out);

    write_atomically(path, |out| {
        out.write_all(&header).and_then(|()| out.flush()).map_err(WriteError::Io)?;
        let file = out.get_ref();
        file.set_len(total).map_err(WriteError::Io)?;
        let progress = |done| progress(header.len() as u64 + done, total);
        match fill(file, tensors, &slices, &make, &progress).map_err(WriteError::Io)? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(SyntheticError::Stopped),
        }
    })
}

fn slices(tensors: &[TensorPlan], data_start: u64) -> Vec<Slice<TensorRuns>> {
    let mut slices = Vec::new();
    let mut start = data_start;
    for (tensor, plan) in tensors.iter().enumerate() {
        let blocks = plan.shape.iter().product::<u64>() / plan.format.block_len() as u64;
        let bytes = blocks * plan.format.block_bytes() as u64;
        let step = RUNS * run_bytes(plan.format) as u64;
        for (i, at) in (0..bytes).step_by(step as usize).enumerate() {
            let what = TensorRuns { tensor, first: i as u64 * RUNS };
            slices.push(Slice { offset: start + at, bytes: step.min(bytes - at) as usize, what });
        }
        start += bytes.next_multiple_of(DEFAULT_ALIGNMENT);
    }
    slices
}

/// Writes all slices, or some of them if `progress` stops the work. Bytes between slices stay zero.
pub(super) fn fill<T: Sync>(
    file: &File,
    tensors: &[TensorPlan],
    slices: &[Slice<T>],
    make: &(dyn Fn(&T, &mut LastPool, &mut [u8]) + Sync),
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> io::Result<ControlFlow<()>> {
    let next = AtomicUsize::new(0);
    let done = AtomicU64::new(0);
    let is_stopped = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let work = || {
        let mut buffer = Vec::new();
        let mut pool = LastPool { tensors, last: None };
        while let Some(slice) = slices.get(next.fetch_add(1, Ordering::Relaxed)) {
            buffer.resize(slice.bytes, 0);
            make(&slice.what, &mut pool, &mut buffer);
            if let Err(error) = write_all_at(file, &buffer, slice.offset) {
                next.store(slices.len(), Ordering::Relaxed);
                failure.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
                return;
            }
            if progress(done.fetch_add(slice.bytes as u64, Ordering::Relaxed) + slice.bytes as u64).is_break() {
                is_stopped.store(true, Ordering::Relaxed);
                next.store(slices.len(), Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |n| n.get().min(8)) {
            scope.spawn(work);
        }
    });
    match failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some(error) => Err(error),
        None if is_stopped.into_inner() => Ok(ControlFlow::Break(())),
        None => Ok(ControlFlow::Continue(())),
    }
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[n..];
        offset += n as u64;
    }
    Ok(())
}

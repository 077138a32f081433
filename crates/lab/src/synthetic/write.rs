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

/// A slice of a tensor.
struct TensorJob {
    tensor: usize,
    first_run: u64,
    offset: u64,
    bytes: usize,
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
    let jobs = jobs(tensors, header.len() as u64);

    write_atomically(path, |out| {
        out.write_all(&header).and_then(|()| out.flush()).map_err(WriteError::Io)?;
        let file = out.get_ref();
        file.set_len(total).map_err(WriteError::Io)?;
        let progress = |done| progress(header.len() as u64 + done, total);
        match fill(file, tensors, &jobs, &progress).map_err(WriteError::Io)? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(SyntheticError::Stopped),
        }
    })
}

fn jobs(tensors: &[TensorPlan], data_start: u64) -> Vec<TensorJob> {
    let mut jobs = Vec::new();
    let mut start = data_start;
    for (tensor, plan) in tensors.iter().enumerate() {
        let blocks = plan.shape.iter().product::<u64>() / plan.format.block_len() as u64;
        let bytes = blocks * plan.format.block_bytes() as u64;
        let step = RUNS * run_bytes(plan.format) as u64;
        for (i, at) in (0..bytes).step_by(step as usize).enumerate() {
            let bytes = step.min(bytes - at) as usize;
            jobs.push(TensorJob { tensor, first_run: i as u64 * RUNS, offset: start + at, bytes });
        }
        start += bytes.next_multiple_of(DEFAULT_ALIGNMENT);
    }
    jobs
}

/// Writes all jobs, or some of them if `progress` stops the work. Padding between tensors stays zero.
fn fill(
    file: &File,
    tensors: &[TensorPlan],
    jobs: &[TensorJob],
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> io::Result<ControlFlow<()>> {
    let next = AtomicUsize::new(0);
    let done = AtomicU64::new(0);
    let is_stopped = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let work = || {
        let mut buffer = Vec::new();
        let mut pool: Option<(usize, Pool)> = None;
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let pool = match &mut pool {
                Some((tensor, pool)) if *tensor == job.tensor => pool,
                stale => &mut stale.insert((job.tensor, Pool::new(&tensors[job.tensor]))).1,
            };
            buffer.resize(job.bytes, 0);
            pool.fill(job.first_run, &mut buffer);
            if let Err(error) = write_all_at(file, &buffer, job.offset) {
                next.store(jobs.len(), Ordering::Relaxed);
                failure.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
                return;
            }
            if progress(done.fetch_add(job.bytes as u64, Ordering::Relaxed) + job.bytes as u64).is_break() {
                is_stopped.store(true, Ordering::Relaxed);
                next.store(jobs.len(), Ordering::Relaxed);
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

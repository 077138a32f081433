//! Writes a model's file with several threads.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use gristmill_files::gguf::{DEFAULT_ALIGNMENT, GgufWriter, WriteError, write_atomically};

use super::blocks::{Pool, run_bytes};
use super::shapes::TensorPlan;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{check_space, folder};

/// Runs of one job: about 16 MiB.
const RUNS: u64 = 1 << 16;

/// A slice of a tensor.
struct TensorJob {
    tensor: usize,
    first_run: u64,
    offset: u64,
    bytes: usize,
}

pub(super) fn write(
    path: &Path,
    tensors: &[TensorPlan],
    file: GgufWriter,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<(), Failure> {
    let total = file.file_bytes();
    let folder = folder(path);
    fs::create_dir_all(folder).map_err(|e| {
        Failure::new(format!("cannot make {}: {e}; name a place that can be written with -o", folder.display()))
    })?;
    check_space(path, total)?;
    let mut header = Vec::new();
    file.begin(&mut header)?;
    let jobs = jobs(tensors, header.len() as u64);

    let interrupt = Interrupt::watch()?;
    write_atomically(path, |out| {
        out.write_all(&header).and_then(|()| out.flush()).map_err(WriteError::Io)?;
        let file = out.get_ref();
        file.set_len(total).map_err(WriteError::Io)?;
        let progress = |done| progress(header.len() as u64 + done, total);
        fill(file, tensors, &jobs, &interrupt, &progress).map_err(WriteError::Io)?;
        interrupt.check()
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

/// Writes all jobs, or some of them after a signal. Padding between tensors stays zero.
fn fill(
    file: &File,
    tensors: &[TensorPlan],
    jobs: &[TensorJob],
    interrupt: &Interrupt,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let done = AtomicU64::new(0);
    let failure = Mutex::new(None);
    let work = || {
        let mut buffer = Vec::new();
        let mut pool: Option<(usize, Pool)> = None;
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| interrupt.signal().is_none()) {
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
            progress(done.fetch_add(job.bytes as u64, Ordering::Relaxed) + job.bytes as u64);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |n| n.get().min(8)) {
            scope.spawn(work);
        }
    });
    failure.into_inner().unwrap_or_else(|e| e.into_inner()).map_or(Ok(()), Err)
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

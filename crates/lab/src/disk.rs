//! How fast a model's file can be read while the model runs.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gristmill_cpu::READERS;
use gristmill_engine::model::{TensorReads, TensorUse};
use gristmill_files::gguf::{FileReader, GgufError, GgufFile};

use crate::error::LabError;
use crate::random::Random;

/// How long reads are measured.
const TIME: Duration = Duration::from_millis(500);

/// The rate of reads, and whether they go past the page cache.
#[derive(Clone, Copy, Debug)]
pub struct DiskRate {
    /// Over all readers.
    pub bytes_per_second: f64,
    /// Whether reads go past the page cache.
    pub is_direct: bool,
}

/// Reads random experts of a model for a moment, as many at once as a model that runs. `None` without experts.
///
/// # Errors
/// If the file cannot be read.
pub fn read_rate(file: &GgufFile, uses: &[TensorUse]) -> Result<Option<DiskRate>, LabError> {
    let readers = file.readers()?;
    // The file and the range of each matrix of experts.
    let mut matrices: Vec<(&FileReader, Range<u64>)> = Vec::new();
    for it in uses {
        let TensorReads::Experts { experts, .. } = it.reads else { continue };
        let Some(tensor) = file.tensor(&it.tensor) else { continue };
        let Some(reader) = readers.get(tensor.part) else { continue };
        let bytes = tensor.bytes / (experts as u64).max(1);
        let starts = (0..experts as u64).map(|expert| tensor.offset + expert * bytes);
        matrices.extend(starts.map(|start| (&**reader, start..start + bytes)));
    }
    if matrices.is_empty() {
        return Ok(None);
    }
    let read = AtomicU64::new(0);
    let started = Instant::now();
    let one = |number: usize| -> Result<(), GgufError> {
        let mut random = Random::named(&format!("reader {number}"));
        while started.elapsed() < TIME {
            let (reader, range) = &matrices[random.below(matrices.len() as u64) as usize];
            reader.read(range.clone(), &mut |bytes| {
                read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            })?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|number| scope.spawn(move || one(number))).collect();
        let joined = readers.into_iter().map(|reader| reader.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.collect::<Result<Vec<()>, GgufError>>()
    })?;
    let bytes_per_second = read.into_inner() as f64 / started.elapsed().as_secs_f64();
    Ok(Some(DiskRate { bytes_per_second, is_direct: readers.iter().all(|reader| reader.is_direct()) }))
}

//! Reads ranges of a file while a model runs, past the system's page cache where that is possible.
//!
//! A map reads pages one by one and ends the process if the file was truncated. A [`FileReader`] reads a range at once, into its
//! own memory, and reports a file that has changed.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::error::GgufError;

/// Memory, offset and length of a direct read are multiples of the disk's block size, which is at most this.
const ALIGNMENT: u64 = 4096;

/// What tells a file that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

/// A file that is read in ranges, by several threads.
#[derive(Debug)]
pub struct FileReader {
    path: PathBuf,
    stamp: Stamp,
    /// Reads go through the page cache.
    cached: File,
    /// Reads go past it, if the file system allows that.
    direct: Option<File>,
    /// A direct read was refused.
    is_refused: AtomicBool,
    /// Memory of earlier reads.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl FileReader {
    /// Opens the file of a map.
    pub(super) fn open(path: &Path, stamp: Stamp) -> Result<Self, GgufError> {
        let path = path.to_owned();
        let cached = File::open(&path).map_err(|source| GgufError::Io { path: path.clone(), source })?;
        let direct = open_direct(&path);
        let is_refused = AtomicBool::new(false);
        let spare = Mutex::default();
        let reader = Self { path, stamp, cached, direct, is_refused, spare };
        reader.check_unchanged()?;
        Ok(reader)
    }

    /// Whether reads go past the page cache. The first read can still find out that they cannot.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some() && !self.is_refused.load(Ordering::Relaxed)
    }

    /// Reads a range and passes its bytes to `take`.
    ///
    /// # Errors
    /// [`GgufError::Changed`] if the file is not the one that was opened any more, and [`GgufError::Io`]. Then nothing is passed.
    pub fn read(&self, range: Range<u64>, take: &mut dyn FnMut(&[u8])) -> Result<(), GgufError> {
        let mut memory = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let result = self.read_into(&mut memory, range, take);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        result
    }

    fn read_into(&self, memory: &mut Vec<u8>, range: Range<u64>, take: &mut dyn FnMut(&[u8])) -> Result<(), GgufError> {
        let io_error = |source: io::Error| GgufError::Io { path: self.path.clone(), source };
        let from = range.start / ALIGNMENT * ALIGNMENT;
        let needed = range.end.checked_sub(from).and_then(|len| usize::try_from(len).ok());
        let len = needed.and_then(|len| len.checked_next_multiple_of(ALIGNMENT as usize));
        let (true, Some(needed), Some(len)) = (range.start <= range.end, needed, len) else {
            return Err(io_error(io::ErrorKind::InvalidInput.into()));
        };
        memory.resize(memory.len().max(len + ALIGNMENT as usize), 0);
        let first = memory.as_ptr().align_offset(ALIGNMENT as usize).min(ALIGNMENT as usize);
        let memory = &mut memory[first..first + len];
        let done = self.fill(from, needed, memory);
        // A file that has changed explains any failure.
        self.check_unchanged()?;
        done.map_err(io_error)?;
        take(&memory[(range.start - from) as usize..needed]);
        Ok(())
    }

    fn fill(&self, from: u64, needed: usize, memory: &mut [u8]) -> io::Result<()> {
        if let Some(file) = self.direct.as_ref().filter(|_| self.is_direct()) {
            match fill(file, from, needed, memory) {
                // The file system opens files for direct reads, and refuses the reads.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.is_refused.store(true, Ordering::Relaxed);
                }
                done => return done,
            }
        }
        fill(&self.cached, from, needed, memory)
    }

    fn check_unchanged(&self) -> Result<(), GgufError> {
        let metadata = self.cached.metadata().map_err(|source| GgufError::Io { path: self.path.clone(), source })?;
        let found = Stamp::of(&metadata);
        if found == self.stamp {
            return Ok(());
        }
        let what = match (self.stamp.bytes, found.bytes) {
            (before, now) if before == now => "was written".to_owned(),
            (before, now) => format!("has {now} bytes instead of {before}"),
        };
        Err(GgufError::Changed { path: self.path.clone(), what })
    }
}

/// Reads at least `needed` bytes from offset `from` on. Every read starts at a multiple of [`ALIGNMENT`].
fn fill(file: &File, from: u64, needed: usize, memory: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    loop {
        let read = match read_at(file, &mut memory[done..], from + done as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if done + read >= needed {
            return Ok(());
        }
        let next = (done + read) / ALIGNMENT as usize * ALIGNMENT as usize;
        if next <= done {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        done = next;
    }
}

#[cfg(unix)]
fn read_at(file: &File, memory: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, memory, offset)
}

#[cfg(windows)]
fn read_at(file: &File, memory: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, memory, offset)
}

/// Opens a file for reads past the page cache; `None` where the system has none.
#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_path: &Path) -> Option<File> {
    None
}

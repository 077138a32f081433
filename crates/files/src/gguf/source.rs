//! The bytes of a file: mapped, static or owned. The only unsafe code of this crate is here.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use memmap2::Mmap;

/// The bytes of one file.
#[derive(Debug)]
pub enum Bytes {
    /// Read from the file's map.
    Mapped(Mmap),
    /// Linked into the program.
    Static(&'static [u8]),
    /// In memory.
    Owned(Arc<[u8]>),
}

impl Bytes {
    /// Maps a file, read-only.
    ///
    /// # Errors
    /// The operating system's.
    #[allow(unsafe_code)]
    pub fn map(file: &File) -> io::Result<Bytes> {
        // SAFETY: the mapping is read-only and nothing in this process writes the file. A map of a file that another
        // process changes is inherently at that process's mercy: changed bytes may be read (all readers of the data
        // accept any bytes), and truncation ends this process by SIGBUS. `GgufFile::open` documents that the file must
        // stay unchanged.
        unsafe { Mmap::map(file) }.map(Bytes::Mapped)
    }

    /// Advises the system that a range will not be read soon, so that its pages may leave this process.
    #[cfg(unix)]
    #[allow(unsafe_code)]
    pub fn release(&self, offset: usize, len: usize) {
        let Bytes::Mapped(map) = self else { return };
        if offset.checked_add(len).is_none_or(|end| end > map.len()) {
            return;
        }
        // SAFETY: the range lies in the map. `DontNeed` discards private changes, of which a read-only shared map has
        // none: whoever reads these pages again (also pages shared with a neighbouring tensor) gets the file's bytes.
        let advised = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, len) };
        // Only advice: where it is refused, the pages stay.
        drop(advised);
    }

    /// Only Unix takes this advice.
    #[cfg(not(unix))]
    pub fn release(&self, _offset: usize, _len: usize) {}
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Static(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

//! Files that appear under their name when they are complete.
//!
//! # Files appear complete or not at all
//!
//! Converters and the quantiser write under a temporary name, sync and rename.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::writer::WriteError;

/// A file under a temporary name. Its errors name the file that was requested.
#[derive(Debug)]
pub struct NewFile {
    out: BufWriter<File>,
    /// The final name.
    path: PathBuf,
}

impl NewFile {
    /// The file itself, for writes at any place. What was written to `self` may not have reached it before a flush.
    pub fn get_ref(&self) -> &File {
        self.out.get_ref()
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|error| named(&self.path, error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(|error| named(&self.path, error))
    }
}

/// The error with the path; [`WriteError`] takes it out again.
fn named(path: &Path, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), WriteError::Path { path: path.to_owned(), source })
}

/// Writes a file under a temporary name next to `path` and renames it when it is complete and on the disk, so that
/// `path` never holds half a file. On failure the temporary file is removed.
///
/// # Errors
/// The errors of `write`, and [`WriteError::Path`] if the file cannot be created, written or renamed.
pub fn write_atomically<E: From<WriteError>>(
    path: &Path,
    write: impl FnOnce(&mut NewFile) -> Result<(), E>,
) -> Result<(), E> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let error = |source| E::from(WriteError::Path { path: path.to_owned(), source });

    let file = File::create_new(&partial).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => WriteError::InTheWay(partial.clone()).into(),
        _ => error(e),
    })?;
    let mut out = NewFile { out: BufWriter::with_capacity(1 << 20, file), path: path.to_owned() };
    let written = write(&mut out)
        // Renamed before its data is on the disk, a crash could leave an empty file under the final name.
        .and_then(|()| out.out.flush().and_then(|()| out.get_ref().sync_all()).map_err(error))
        .and_then(|()| fs::rename(&partial, path).map_err(error));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&partial);
    }
    written
}

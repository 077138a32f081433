//! A file that is written whole or not at all.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::WriteError;

/// Writes a file under a temporary name beside `path` and renames it when it is complete and on the disk, so that `path`
/// never holds half a file. On failure the temporary file is removed.
///
/// # Errors
/// Those of `write`, and [`WriteError::Path`] if the temporary file cannot be created or written, or not be renamed.
pub fn write_atomically<E: From<WriteError>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), E> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let error = |path: &Path, source| E::from(WriteError::Path { path: path.to_owned(), source });

    let file = File::create_new(&partial).map_err(|e| error(&partial, e))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = write(&mut out)
        // Renamed before its data is on the disk, a crash could leave an empty file under the final name.
        .and_then(|()| out.flush().and_then(|()| out.get_ref().sync_all()).map_err(|e| error(&partial, e)))
        .and_then(|()| fs::rename(&partial, path).map_err(|e| error(path, e)));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&partial);
    }
    written
}

//! Machine code on disk, so that a kernel is compiled once on a machine: a file for each compilation, named by what
//! went in.

use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of the hash before the machine code in a file.
const HASH: usize = 32;

/// A folder of machine code.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    /// The first failure to keep something.
    trouble: OnceLock<String>,
}

impl Cache {
    /// The user's, if this system says where programs keep such things. It need not be there yet.
    pub fn of_user() -> Option<Self> {
        use etcetera::BaseStrategy;
        let base = etcetera::choose_base_strategy().ok()?;
        Some(Self::at(base.cache_dir().join("gristmill").join("kernels")))
    }

    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder, trouble: OnceLock::new() }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Files that it has, and their bytes.
    ///
    /// # Errors
    /// If the folder is there but cannot be read.
    pub fn usage(&self) -> io::Result<(usize, u64)> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, 0)),
            entries => entries?,
        };
        let (mut files, mut bytes) = (0, 0);
        for entry in entries {
            // A file that another process has just removed counts as none.
            if let Ok(metadata) = entry?.metadata() {
                (files, bytes) = (files + 1, bytes + metadata.len());
            }
        }
        Ok((files, bytes))
    }

    /// The number of files that are truncated or changed. It reads all files.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn damaged(&self) -> io::Result<usize> {
        let mut damaged = 0;
        for entry in fs::read_dir(&self.folder)? {
            damaged += usize::from(read(&entry?.path()).is_none());
        }
        Ok(damaged)
    }

    /// Writes a file and removes it.
    ///
    /// # Errors
    /// Why that cannot be done.
    pub fn try_write(&self) -> io::Result<()> {
        let probe = self.folder.join(format!("probe-{}", std::process::id()));
        write(&probe, &[]).and_then(|()| fs::remove_file(&probe))
    }

    /// A message for people: that something could not be kept, and why.
    pub(crate) fn notice(&self) -> Option<String> {
        self.trouble.get().cloned()
    }

    /// Whether there is a file of this name, which may be damaged.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.folder.join(name).is_file()
    }

    /// The content kept under this name, unless it is missing, cut off or changed.
    pub(crate) fn get(&self, name: &str) -> Option<Vec<u8>> {
        read(&self.folder.join(name))
    }

    /// Writes it.
    pub(crate) fn write(&self, name: &str, code: &[u8]) -> io::Result<()> {
        write(&self.folder.join(name), code)
    }

    /// Keeps it. A failure costs time alone, at the next start: it is told by [`Self::notice`].
    pub(crate) fn keep(&self, name: &str, code: &[u8]) {
        if let Err(error) = self.write(name, code) {
            let folder = self.folder.display();
            let trouble =
                format!("compiled kernels cannot be kept in {folder}: {error}; they are compiled at each start");
            tracing::warn!("{trouble}");
            let _ = self.trouble.set(trouble);
        }
    }
}

/// The machine code in a file, unless the file is missing, truncated or changed.
fn read(file: &Path) -> Option<Vec<u8>> {
    let content = fs::read(file).ok()?;
    let (hash, code) = content.split_at_checked(HASH)?;
    (Sha256::digest(code).as_slice() == hash).then(|| code.to_vec())
}

/// Whole or not at all: several threads and processes may compile the same.
fn write(file: &Path, code: &[u8]) -> io::Result<()> {
    static PARTS: AtomicU32 = AtomicU32::new(0);
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    let unique = format!("{}-{}.part", std::process::id(), PARTS.fetch_add(1, Ordering::Relaxed));
    let part = file.with_extension(unique);
    let mut out = fs::File::create(&part)?;
    let outcome = out.write_all(&Sha256::digest(code)).and_then(|()| out.write_all(code));
    drop(out);
    outcome.and_then(|()| fs::rename(&part, file)).inspect_err(|_| {
        // The remaining part is of no use; that it stays is no second failure.
        let _ = fs::remove_file(&part);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_not_read() {
        let cache = Cache::at(std::env::temp_dir().join(format!("gristmill-cubin-{}", std::process::id())));
        assert_eq!((cache.get("x.cubin"), cache.usage().unwrap()), (None, (0, 0)));
        assert!(!cache.has("x.cubin"));
        cache.keep("x.cubin", b"code");
        assert!(cache.has("x.cubin"));
        assert_eq!(cache.get("x.cubin").as_deref(), Some(&b"code"[..]));
        assert_eq!((cache.notice(), cache.usage().unwrap()), (None, (1, HASH as u64 + 4)));
        let file = cache.folder().join("x.cubin");
        let whole = fs::read(&file).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..20], &[]] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(cache.get("x.cubin"), None);
        }
        let mut changed = whole;
        changed[HASH] ^= 1;
        fs::write(&file, changed).unwrap();
        assert_eq!(cache.get("x.cubin"), None);
        cache.try_write().unwrap();
        assert_eq!(cache.usage().unwrap().0, 1, "nothing is left behind");
        fs::remove_dir_all(cache.folder()).unwrap();
    }

    #[test]
    fn an_unwritable_folder_is_said() {
        let cache = Cache::at("/dev/null/kernels".into());
        assert!(cache.try_write().is_err());
        cache.keep("x.cubin", b"code");
        assert!(cache.notice().unwrap().contains("/dev/null/kernels"));
    }
}

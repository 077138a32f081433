//! Numbers of bytes: as people read them, and on the disk.

use std::fs;
use std::path::Path;

/// A readable number of bytes, in powers of ten.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}

/// Bytes on the disk of a file with holes.
#[cfg(unix)]
pub(crate) fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map_or(0, |data| data.blocks() * 512)
}

#[cfg(not(unix))]
pub(crate) fn allocated(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |data| data.len())
}

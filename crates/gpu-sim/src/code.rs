//! Maps code addresses to source lines, with the library's debug information.

use crate::engine::abi::Site;
use crate::fault::Place;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Source names and lines, innermost first.
type Lines = Vec<(String, u32)>;

/// A loaded library. The default one has no code.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) path: PathBuf,
    /// Where it is in memory.
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// The lines of addresses that were requested.
    pub(crate) known: Mutex<HashMap<usize, Option<Lines>>>,
    /// Return addresses of calls that have waited, in checked mode.
    pub(crate) passed: Mutex<HashSet<usize>>,
}

impl Code {
    /// The offset of an address in the code.
    pub(crate) fn offset(&self, code: *const c_void) -> u32 {
        code.addr().wrapping_sub(self.begin) as u32
    }

    /// The site of an offset.
    pub(crate) fn site(&self, offset: u32) -> Site {
        Site { code: std::ptr::without_provenance(self.begin + offset as usize), ..Site::NOWHERE }
    }

    /// Whether some memory is the library's own.
    pub(crate) fn holds(&self, at: usize, bytes: usize) -> bool {
        self.begin <= at && at + bytes <= self.end
    }

    /// The source lines of a site; without debug information the site's own file and line.
    pub(crate) fn place(&self, site: Site) -> Place {
        if (self.begin..self.end).contains(&site.code.addr())
            && let Some(lines) = self.known_lines(site.code.addr() - self.begin)
        {
            return Place { lines };
        }
        if site.file.is_null() {
            return Place::default();
        }
        // SAFETY: the compiler's own C string, in a library that is loaded during the launch.
        let file = unsafe { CStr::from_ptr(site.file) }.to_string_lossy().into_owned();
        Place { lines: vec![(file, site.line)] }
    }

    /// Whether two sites are the same source line, called from the same lines. One line may be compiled to several
    /// addresses.
    pub(crate) fn same(&self, a: Site, b: Site) -> bool {
        a.code == b.code && a.line == b.line || self.place(a) == self.place(b)
    }

    /// Keeps addresses of calls that have waited.
    pub(crate) fn pass(&self, addresses: impl Iterator<Item = usize>) {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).extend(addresses);
    }

    /// Their lines, and the lines of those that called what they are in.
    pub(crate) fn passed(&self) -> BTreeSet<(String, u32)> {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = passed.iter().filter(|address| self.holds(**address, 1));
        inside.filter_map(|address| self.known_lines(address - self.begin)).flatten().collect()
    }

    fn known_lines(&self, offset: usize) -> Option<Lines> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(offset).or_insert_with(|| self.lines(offset)).clone()
    }

    /// The lines of a return address, innermost first, without those of the prelude.
    fn lines(&self, offset: usize) -> Option<Lines> {
        let loader = addr2line::Loader::new(&self.path).ok()?;
        let mut frames = loader.find_frames(offset as u64 - 1).ok()?;
        let mut lines = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let Some((file, line)) = frame.location.and_then(|location| location.file.zip(location.line)) else {
                continue;
            };
            // The compiler ran in the root folder, which it puts before source names.
            let file = file.trim_start_matches('/');
            if !file.starts_with("gpu-sim/") {
                lines.push((file.to_owned(), line));
            }
        }
        (!lines.is_empty()).then_some(lines)
    }
}

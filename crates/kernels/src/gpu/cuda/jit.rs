//! Kernel text to machine code: compiled by NVRTC, kept on disk.

use super::nvrtc::Nvrtc;
use crate::gpu::{Kernel, source};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Bytes of the hash before the machine code in a file of the cache.
const HASH: usize = 32;

/// Compiles kernels for one architecture.
#[derive(Debug)]
pub(crate) struct Compiler {
    nvrtc: Nvrtc,
    /// As NVRTC names it: `sm_90a`.
    architecture: String,
    /// Where machine code is kept; `None` to keep none.
    cache: Option<PathBuf>,
}

/// NVRTC's name of a compute capability (90 for 9.0). From 9.0 on an architecture has features of its own, which the
/// kernels may use.
pub(crate) fn architecture(capability: u32) -> String {
    format!("sm_{capability}{}", if capability >= 90 { "a" } else { "" })
}

/// The directory for machine code, if this system says where programs keep such things.
pub(crate) fn default_cache() -> Option<PathBuf> {
    use etcetera::BaseStrategy;
    Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("gristmill").join("kernels"))
}

impl Compiler {
    /// A compiler for a compute capability.
    pub(crate) fn new(nvrtc: Nvrtc, capability: u32, cache: Option<PathBuf>) -> Self {
        Self { nvrtc, architecture: architecture(capability), cache }
    }

    /// The compiler and the architecture, for people.
    pub(crate) fn describe(&self) -> String {
        let (major, minor) = self.nvrtc.version;
        format!("NVRTC {major}.{minor} ({}), {}", self.nvrtc.path.display(), self.architecture)
    }

    /// The machine code of a kernel's text, from the cache or compiled, or why there is none.
    pub(crate) fn cubin(&self, kernel: &Kernel) -> Result<Vec<u8>, String> {
        let (text, options) = self.input(kernel)?;
        let file = self.cache.as_ref().map(|directory| directory.join(self.key(&text, &options)));
        if let Some(cubin) = file.as_deref().and_then(read) {
            return Ok(cubin);
        }
        let (cubin, _log) = self.nvrtc.compile(&text, kernel.file, &options)?;
        if let Some(file) = &file
            && let Err(error) = write(file, &cubin)
        {
            tracing::warn!("{}: {error}; kernels will be compiled again the next time", file.display());
        }
        Ok(cubin)
    }

    /// Machine code and the compiler's log, past the cache, with further options.
    pub(crate) fn compile(&self, kernel: &Kernel, further: &[&str]) -> Result<(Vec<u8>, String), String> {
        let (text, mut options) = self.input(kernel)?;
        options.extend(further.iter().map(|&option| option.to_owned()));
        self.nvrtc.compile(&text, kernel.file, &options)
    }

    /// What NVRTC is given: the text with its inclusions, and options.
    fn input(&self, kernel: &Kernel) -> Result<(String, Vec<String>), String> {
        let text = source::expand(kernel.file, &[]).ok_or_else(|| format!("there is no text {}", kernel.file))?;
        let mut options = vec![
            format!("--gpu-architecture={}", self.architecture),
            "--std=c++17".to_owned(),
            "-default-device".to_owned(),
        ];
        options.extend(kernel.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        Ok((text, options))
    }

    /// The cache's name of what these would compile to.
    fn key(&self, text: &str, options: &[String]) -> String {
        let mut hash = Sha256::new();
        let version = format!("{:?}", self.nvrtc.version);
        for part in options.iter().map(String::as_str).chain([version.as_str(), text]) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hex}.cubin")
    }
}

/// A file of the cache, unless it is missing, cut off or changed.
fn read(file: &Path) -> Option<Vec<u8>> {
    let content = fs::read(file).ok()?;
    let (hash, cubin) = content.split_at_checked(HASH)?;
    (Sha256::digest(cubin).as_slice() == hash).then(|| cubin.to_vec())
}

/// Whole or not at all: several processes may compile the same.
fn write(file: &Path, cubin: &[u8]) -> std::io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let part = file.with_extension(format!("{}.part", std::process::id()));
    let mut out = fs::File::create(&part)?;
    let outcome = out.write_all(&Sha256::digest(cubin)).and_then(|()| out.write_all(cubin));
    drop(out);
    outcome.and_then(|()| fs::rename(&part, file)).inspect_err(|_| {
        // What is left is of no use; that it stays is no second failure.
        let _ = fs::remove_file(&part);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_of_the_cache_is_not_read() {
        let directory = std::env::temp_dir().join(format!("gristmill-cubin-{}", std::process::id()));
        let file = directory.join("x.cubin");
        assert_eq!(read(&file), None);
        write(&file, b"code").unwrap();
        assert_eq!(read(&file).as_deref(), Some(&b"code"[..]));
        let whole = fs::read(&file).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..20], &[]] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(read(&file), None);
        }
        let mut changed = whole;
        changed[HASH] ^= 1;
        fs::write(&file, changed).unwrap();
        assert_eq!(read(&file), None);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn an_unwritable_cache_is_an_error_and_no_panic() {
        assert!(write(Path::new("/dev/null/kernels/x.cubin"), b"code").is_err());
    }
}

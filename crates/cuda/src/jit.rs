//! Kernel sources to machine code: compiled by NVRTC, kept on disk.
//!
//! # Kernels are compiled where they run
//!
//! NVRTC compiles machine code once. The user's cache stores it under a hash of code (without comments and line numbers),
//! definitions and compiler version, so a kernel that another version of gristmill has too is not compiled again.
//! `make_ready` runs steps of all sizes on a device that records launches and computes nothing. Then it compiles the
//! recorded kernels on all cores, so no list of a model's kernels is needed. Building gristmill needs no
//! CUDA.

use super::SOURCES;
use super::cache::Cache;
use super::nvrtc::Nvrtc;
use gristmill_gpu::{Unit, source};
use sha2::{Digest, Sha256};

/// Compiles kernels for one architecture.
#[derive(Debug)]
pub(crate) struct Compiler {
    nvrtc: Nvrtc,
    /// The architecture in NVRTC's terms: `sm_90a`.
    architecture: String,
}

/// NVRTC's name of a compute capability (90 for 9.0). From 9.0 on an architecture has features of its own, which the
/// kernels may use.
pub(crate) fn architecture(capability: u32) -> String {
    format!("sm_{capability}{}", if capability >= 90 { "a" } else { "" })
}

impl Compiler {
    /// A compiler for a compute capability.
    pub(crate) fn new(nvrtc: Nvrtc, capability: u32) -> Self {
        Self { nvrtc, architecture: architecture(capability) }
    }

    /// The machine code of a unit and the compiler's log, or why there is none.
    pub(crate) fn compile(&self, unit: &Unit) -> Result<(Vec<u8>, String), String> {
        let (source, options) = self.input(unit)?;
        self.nvrtc.compile(&source, unit.file, &options)
    }

    /// The machine code of a unit, from the cache or compiled.
    pub(crate) fn cubin(&self, unit: &Unit, cache: Option<&Cache>) -> Result<Vec<u8>, String> {
        let Some(cache) = cache else { return self.compile(unit).map(|(code, _log)| code) };
        let (source, options) = self.input(unit)?;
        let name = self.name(&source, &options);
        if let Some(code) = cache.get(&name) {
            return Ok(code);
        }
        let (code, _log) = self.nvrtc.compile(&source, unit.file, &options)?;
        cache.keep(&name, &code);
        Ok(code)
    }

    /// The same as [`Compiler::compile`] of a source that may include the backend's files, with options beside those that
    /// all have.
    pub(crate) fn compile_other(
        &self,
        unit: &Unit,
        content: &str,
        further: &[&str],
    ) -> Result<(Vec<u8>, String), String> {
        let (source, mut options) = self.input_with(unit, &[(unit.file, content)])?;
        options.extend(further.iter().map(|&option| option.to_owned()));
        self.nvrtc.compile(&source, unit.file, &options)
    }

    /// The input of NVRTC: the source with its inclusions, and options.
    fn input(&self, unit: &Unit) -> Result<(String, Vec<String>), String> {
        self.input_with(unit, &[])
    }

    fn input_with(&self, unit: &Unit, instead: &[(&str, &str)]) -> Result<(String, Vec<String>), String> {
        let missing = || format!("there is no source {}, or none that it includes", unit.file);
        let source = source::expand(unit, SOURCES, instead).ok_or_else(missing)?;
        let mut options = vec![
            format!("--gpu-architecture={}", self.architecture),
            "--std=c++17".to_owned(),
            "-default-device".to_owned(),
        ];
        options.extend(unit.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        Ok((source, options))
    }

    /// Whether the cache has the machine code of a unit.
    pub(crate) fn is_cached(&self, unit: &Unit, cache: &Cache) -> bool {
        self.input(unit).is_ok_and(|(source, options)| cache.has(&self.name(&source, &options)))
    }

    fn name(&self, source: &str, options: &[String]) -> String {
        name(source, options, self.nvrtc.version())
    }
}

/// The cache's name of the machine code of a source. It depends on the compiler, its options, and the code of the source,
/// so that a kernel that is the same in another version of gristmill is found.
fn name(source: &str, options: &[String], compiler: (i32, i32)) -> String {
    let mut hash = Sha256::new();
    let version = format!("{compiler:?}");
    let source = source::significant(source);
    for part in options.iter().chain([&version, &source]) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}.cubin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_kernel_has_the_same_name_in_another_version() {
        let source = |instead: &[(&str, &str)]| {
            let unit = Unit::new("gemv.cu", &[("FORMAT", "Q4_K")]);
            source::expand(&unit, SOURCES, instead).expect("a source")
        };
        let options = ["-DFORMAT=Q4_K".to_owned()];
        let first = name(&source(&[]), &options, (12, 9));
        // A header with other comments, and one with other code.
        let header = SOURCES.iter().flat_map(|library| library.files).find(|(name, _)| *name == "weight.h");
        let (_, header) = header.expect("a header");
        assert_eq!(name(&source(&[("weight.h", &format!("// New.\n\n{header}"))]), &options, (12, 9)), first);
        assert_ne!(name(&source(&[("weight.h", &format!("{header}\nint more;"))]), &options, (12, 9)), first);
        assert_ne!(name(&source(&[]), &["-DFORMAT=Q5_K".to_owned()], (12, 9)), first);
        assert_ne!(name(&source(&[]), &options, (13, 0)), first);
    }
}

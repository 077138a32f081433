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
use super::nvrtc::Nvrtc;
use gristmill_gpu::{Unit, source};
use sha2::{Digest, Sha256};

/// NVRTC's name of a compute capability (90 for 9.0). From 9.0 on an architecture has features of its own, which the
/// kernels may use.
pub(crate) fn architecture(capability: u32) -> String {
    format!("sm_{capability}{}", if capability >= 90 { "a" } else { "" })
}

/// What NVRTC compiles for one unit.
#[derive(Debug)]
pub(crate) struct Input {
    file: &'static str,
    /// The source with its inclusions.
    source: String,
    options: Vec<String>,
}

impl Input {
    /// The input for a unit and an architecture in NVRTC's terms (`sm_90a`).
    pub(crate) fn new(unit: &Unit, architecture: &str) -> Result<Self, String> {
        Self::with(unit, architecture, &[], &[])
    }

    /// The same of a source that may include the backend's files, with options beside those that all have.
    pub(crate) fn other(unit: &Unit, architecture: &str, content: &str, further: &[&str]) -> Result<Self, String> {
        Self::with(unit, architecture, &[(unit.file, content)], further)
    }

    fn with(unit: &Unit, architecture: &str, instead: &[(&str, &str)], further: &[&str]) -> Result<Self, String> {
        let missing = || format!("there is no source {}, or none that it includes", unit.file);
        let source = source::expand(unit, SOURCES, instead).ok_or_else(missing)?;
        let common = [format!("--gpu-architecture={architecture}"), "--std=c++17".into(), "-default-device".into()];
        let defines = unit.defines.iter().map(|(name, value)| format!("-D{name}={value}"));
        let further = further.iter().map(|&option| option.to_owned());
        let options = common.into_iter().chain(defines).chain(further).collect();
        Ok(Self { file: unit.file, source, options })
    }

    /// The machine code and the compiler's log, or why there is none.
    pub(crate) fn compile(&self, nvrtc: &Nvrtc) -> Result<(Vec<u8>, String), String> {
        nvrtc.compile(&self.source, self.file, &self.options)
    }

    /// The name of the machine code that this version of NVRTC makes of it.
    pub(crate) fn name(&self, compiler: (i32, i32)) -> String {
        name(&self.source, &self.options, compiler)
    }
}

/// The name of the machine code of a source. It depends on the compiler, its options, and the code of the source,
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

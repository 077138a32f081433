//! Kernel sources as they are in the checkout now, so that a change of a kernel needs nothing built but the kernel.

use gpu_sim::Language;
use gristmill_gpu::Unit;
use gristmill_gpu::source::{self, Library};
use gristmill_kernels::format::{self, Format};
use std::path::Path;
use std::sync::OnceLock;

/// The kernel sources of a GPU's backend.
pub fn libraries(language: Language) -> &'static [Library] {
    match language {
        Language::Cuda => gristmill_cuda::SOURCES,
        Language::Metal => gristmill_metal::SOURCES,
    }
}

/// Whether a GPU's backend has a source of this name.
pub fn has(language: Language, file: &str) -> bool {
    let of_format = of_formats().any(|name| name == file);
    of_format || libraries(language).iter().flat_map(|library| library.files).any(|(name, _)| *name == file)
}

/// The sources of formats, with those that several of them include. Tables of points are in no file.
fn of_formats() -> impl Iterator<Item = &'static str> {
    let shared = format::gpu_sources().iter().map(|(name, _)| *name);
    Format::ALL.iter().map(|format| format.gpu_source().0).chain(shared)
}

/// Names and contents of all sources.
pub fn all() -> &'static [(&'static str, String)] {
    static ALL: OnceLock<Vec<(&str, String)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read =
            |(name, path): (&'static str, String)| Some((name, std::fs::read_to_string(crates.join(path)).ok()?));
        let formats = of_formats().map(|name| (name, format!("kernels/src/{name}")));
        let libraries = gristmill_cuda::SOURCES.iter().chain(gristmill_metal::SOURCES.last());
        let files = libraries.flat_map(|library| {
            library.files.iter().map(|(name, _)| (*name, format!("{}/src/kernels/{name}", library.krate)))
        });
        formats.chain(files).filter_map(read).collect()
    })
}

/// A unit's source as the simulator compiles it: inline PTX in plain C++, and files in `instead` that replace files of
/// the same names.
pub fn expand(unit: &Unit, language: Language, instead: &[(&'static str, String)]) -> Option<String> {
    let own = instead.iter().chain(all()).map(|(name, content)| (*name, content.as_str()));
    let simulated = [("ptx.cuh", gpu_sim::PTX), ("hopper.cuh", gpu_sim::HOPPER), ("system.cuh", gpu_sim::SYSTEM)];
    let files: Vec<_> = simulated.into_iter().chain(own).collect();
    source::expand(unit, libraries(language), &files)
}

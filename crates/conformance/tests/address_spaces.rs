//! Metal sources by Clang, as C++ for OpenCL, which checks address spaces; the simulator's C++ does not.
#![cfg(all(target_arch = "x86_64", unix))]

use gpu_sim::{Error, Language, Source};
use gristmill_conformance::sources;
use gristmill_gpu::Unit;
use gristmill_gpu::precompile::parallel_map;
use gristmill_metal::units;
use std::path::Path;

/// Whether there was a Clang that could look.
fn check(kernel: &Unit) -> bool {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/gpu-sim");
    let text = sources::expand(kernel, Language::Metal, &[]).unwrap_or_else(|| panic!("no source {kernel}"));
    let defines: Vec<_> = kernel.defines.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let language = Language::Metal;
    let name = kernel.file;
    let source = Source { language, name, text: &text, defines: &defines, ..Source::default() };
    match gpu_sim::check_address_spaces(&source, &cache) {
        Ok(()) => true,
        Err(Error::NoClang { .. }) => false,
        Err(error) => panic!("{kernel}: {error}"),
    }
}

#[test]
fn of_every_unit() {
    let looked = parallel_map(&units::all(), check, |_| ());
    if looked.contains(&false) {
        eprintln!("skipped: there is no Clang on this machine");
    }
}

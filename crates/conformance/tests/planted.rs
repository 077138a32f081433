//! Bugs that are put into the project's own kernels: checked mode must notice each, as what it is. `cargo xtask prove
//! barriers` does the same with every barrier deleted in turn.
#![cfg(all(target_arch = "x86_64", unix))]

use gpu_sim::Language;
use gristmill_conformance::fault_injection::{BUGS, missed};

fn all_are_found(language: Language) {
    let missed: Vec<String> = BUGS.iter().filter(|bug| bug.language == language).filter_map(missed).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
#[ignore = "minutes"]
fn bugs_of_cuda_are_found() {
    all_are_found(Language::Cuda);
}

#[test]
#[ignore = "a minute"]
fn bugs_of_metal_are_found() {
    all_are_found(Language::Metal);
}

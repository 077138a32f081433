//! Bugs that are put into the project's own kernels: checked mode must notice each, as what it is. `cargo xtask prove
//! barriers` does the same with every barrier deleted in turn.
#![cfg(all(target_arch = "x86_64", unix))]

use gristmill_conformance::broken::{BUGS, missed};

#[test]
#[ignore = "minutes"]
fn bugs_of_each_class_are_found() {
    let missed: Vec<String> = BUGS.iter().filter_map(missed).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

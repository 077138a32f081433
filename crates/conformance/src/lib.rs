//! The tests of whole backends and models, in `tests/`, and a GPU that is not there for them ([`simulated`]). The cases
//! of the op suite are a crate of their own, for `gristmill doctor` runs them too.

#[cfg(all(target_arch = "x86_64", unix))]
pub mod broken;
pub mod families;
#[cfg(all(target_arch = "x86_64", unix))]
pub mod simulated;
#[cfg(all(target_arch = "x86_64", unix))]
pub mod sources;

#[cfg(all(target_arch = "x86_64", unix))]
use gristmill_suite::{ops, rng, suite};

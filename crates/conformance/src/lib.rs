//! The tests of whole backends and models, in `tests/`, and a simulated GPU for them ([`simulated`]). The cases
//! of the op suite are a crate of their own, for `gristmill doctor` runs them too.

pub mod families;
#[cfg(all(target_arch = "x86_64", unix))]
pub mod fault_injection;
pub mod golden;
pub mod golden_logits;
pub mod losses;
pub mod op_suite;
#[cfg(all(target_arch = "x86_64", unix))]
pub mod simulated;
#[cfg(all(target_arch = "x86_64", unix))]
pub mod sources;

/// The Rust of this page compiles, and what is not for a GPU runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kernels.md")]
mod page {}

#[cfg(all(target_arch = "x86_64", unix))]
use gristmill_suite::{ops, rng, suite};

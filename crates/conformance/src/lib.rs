//! The op suite: every operation of a backend against the f64 reference.
//!
//! A backend is tested with one line, [`ops::ALL`] over a [`suite::Suite`]; see `tests/ops.rs`. Cases are random with
//! a fresh seed each time, which a failure prints, beside fixed ragged shapes. Outputs lie in frames of poison
//! ([`framed`]), so that what is not written, or written outside, shows.

pub mod framed;
pub mod ops;
pub mod rng;
#[cfg(all(target_arch = "x86_64", unix))]
pub mod simulated;
pub mod suite;
pub mod weights;

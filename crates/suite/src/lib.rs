//! The op suite: every operation of a backend against the f64 reference.
//!
//! A backend is tested with one line, [`ops::ALL`] over a [`suite::Suite`]; the tests of `cpu` do so for all its levels,
//! those of `cuda` and `metal` for simulated and real devices, and `gristmill doctor` for the device at hand ([`run`]). Cases are
//! random with a fresh seed each time, which a failure prints, next to fixed ragged shapes. Outputs are in guards of poison ([`guarded`]), so that what is
//! not written, or written outside, shows.

#![forbid(unsafe_code)]

mod dry;
pub mod guarded;
pub mod ops;
pub mod rng;
pub mod suite;
pub mod testing;
pub mod weights;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// How much of the suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All cases.
    All,
    /// The cases of [`suite::Suite::quick`].
    Quick,
}

/// Runs a part of the suite with a seed, as [`outcome`] does.
///
/// # Errors
/// That the backend cannot be made, or what failed.
pub fn run(part: ops::Part, make: suite::Make, seed: u64, extent: Extent) -> Result<Vec<suite::Worst>, String> {
    outcome(part, suite(make, seed, extent)?)
}

/// Launches what [`run`] launches with the same seed and extent, on backends that compute nothing. What fails for want of
/// results is ignored.
///
/// # Errors
/// That the backend cannot be made.
pub fn run_dry(part: ops::Part, make: suite::Make, seed: u64, extent: Extent) -> Result<(), String> {
    let suite = suite(make, seed, extent)?.repeated(suite::Repeats::None);
    dry::run(|| {
        let _ = outcome(part, suite);
    });
    Ok(())
}

fn suite(make: suite::Make, seed: u64, extent: Extent) -> Result<suite::Suite, String> {
    let suite = suite::Suite::new(make, seed).map_err(|error| error.to_string())?;
    Ok(match extent {
        Extent::All => suite,
        Extent::Quick => suite.quick(),
    })
}

/// Runs a part of the suite: what failed is an error and no panic. (Cases fail by panicking; what the program's panic
/// hook does then is the caller's responsibility.) Returns the largest error of each kind.
///
/// # Errors
/// What failed, with the case and the seed that repeats it.
pub fn outcome(part: ops::Part, suite: suite::Suite) -> Result<Vec<suite::Worst>, String> {
    // The suite is dropped with whatever a panic has left half done.
    let outcome = catch_unwind(AssertUnwindSafe(move || {
        part(&suite);
        suite.errors()
    }));
    outcome.map_err(|panic| match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or("panicked without a message").to_owned(),
    })
}

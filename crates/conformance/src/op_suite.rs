//! Runs a part of the op suite on a GPU that may be missing, for the tests of the GPU crates.

use gristmill_kernels::Error;
use gristmill_suite::suite::{Make, Repeats, Suite};
use gristmill_suite::testing::{DRAWN_FORMATS, run_part, seed, skipped};

/// Parts that are slow in the simulator: one in this number of cases is run, others with each seed.
const SLOW: [(&str, usize); 5] =
    [("attend", 3), ("attention", 3), ("attention_long", 3), ("experts", 2), ("sample_distribution", 4)];

/// Runs a part of the suite on a simulated GPU, or prints that this machine cannot run the simulator.
///
/// # Panics
/// If a case fails.
pub fn simulated(part: &str, name: &str, make: Make) {
    let one_in = SLOW.iter().find(|(slow, _)| *slow == part).map_or(1, |(_, one_in)| *one_in);
    match Suite::new(make, seed()) {
        Ok(suite) => run_part(part, name, drawn(suite).one_in(one_in)),
        Err(Error::Level(_)) => skipped(format_args!("{part} on {name}: not on this machine")),
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Runs a part of the suite on a device, or prints that the machine has none.
///
/// # Panics
/// If a case fails.
pub fn device(part: &str, name: &str, is_there: bool, make: Make) {
    if !is_there {
        return skipped(format_args!("{part} on {name}: no such device on this machine"));
    }
    run_part(part, name, drawn(Suite::new(make, seed()).unwrap_or_else(|error| panic!("{name}: {error}"))));
}

/// The suite with some formats, and one repeat of each case. `gristmill doctor` and the proofs run all.
pub fn drawn(suite: Suite) -> Suite {
    suite.drawn_formats(DRAWN_FORMATS).repeated(Repeats::One)
}

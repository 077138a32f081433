//! What test programs share: the seed of a run, and what they print.

use crate::ops;
use crate::outcome;
use crate::rng::Rng;
use crate::suite::{Suite, Worst};
use std::cell::Cell;
use std::fmt::Arguments;
use std::io::Write;
use std::sync::LazyLock;

/// Formats of weights that a test program multiplies in a run. `gristmill doctor` and the proofs take all.
pub const DRAWN_FORMATS: usize = 20;

/// The environment variable with the seed of a test run, as a failure prints it. CI sets it; without it, each run has a new
/// seed. `GRISTMILL_SEED` is an option of the command line, whose tests would read it.
pub const SEED: &str = "SUITE_SEED";

/// The seed of this test run: all parts on all backends draw their weights from the same pools.
///
/// # Panics
/// If the variable [`SEED`] is not a number.
pub fn seed() -> u64 {
    static RUN: LazyLock<u64> = LazyLock::new(|| match std::env::var(SEED) {
        Ok(seed) => seed.parse().unwrap_or_else(|_| panic!("{SEED}: {seed} is not a number below 2^64")),
        Err(_) => Rng::fresh_seed(),
    });
    *RUN
}

/// A seed that a test draws its numbers from; it is printed, and another at each call. It is decided by [`seed`] and by the
/// name of the test.
///
/// # Panics
/// As [`seed`].
pub fn seed_of_test() -> u64 {
    thread_local!(static CALLS: Cell<u64> = const { Cell::new(0) });
    let call = CALLS.replace(CALLS.get() + 1);
    let thread = std::thread::current();
    let drawn = Rng::of_part(seed().wrapping_add(call), thread.name().unwrap_or_default()).bits();
    println!("seed {drawn}, of {SEED}={}", seed());
    drawn
}

/// Runs a part of the suite on a backend; prints its largest errors, and that it ran.
///
/// # Panics
/// If a case fails, or there is no such part.
pub fn run_part(part: &str, name: &str, suite: Suite) {
    let backend = suite.backend().name();
    let cases = ops::part(part).unwrap_or_else(|| panic!("no part {part}"));
    let worst = outcome(cases, suite).unwrap_or_else(|message| fail_aloud(format_args!("{part} on {name}"), &message));
    for Worst { kind, nmse, bound } in worst {
        say(format_args!("    {kind:<28} NMSE {nmse:.1e} of {bound:.1e}  ({backend})"));
    }
    say(format_args!("executed: {part} on {name}"));
}

/// Prints what is skipped, and why.
pub fn skipped(what: Arguments) {
    say(format_args!("skipped:  {what}"));
}

/// Prints in one line what failed; then panics with the message.
///
/// # Panics
/// Always.
pub fn fail_aloud(what: Arguments, message: &str) -> ! {
    let line = message.lines().collect::<Vec<_>>().join("; ");
    say(format_args!("failed:   {what}: {line}"));
    panic!("{message}")
}

/// Prints a line on stderr itself, which a test harness does not hide.
fn say(line: Arguments) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

//! The op suite on every level of the CPU.

use gristmill_cpu::{Cpu, Level};
use gristmill_kernels::format::Format;
use gristmill_kernels::{Backend, Error};
use gristmill_suite::suite::{Repeats, Suite};
use gristmill_suite::testing::{DRAWN_FORMATS, run_part, seed, skipped};
use gristmill_suite::{ops, outcome};

/// On levels below the best one of this CPU, one in this number of cases runs; each run draws other cases.
const LOWER_LEVELS: usize = 3;

/// The same for emulated CPUs, which take minutes for all cases of attention.
const EMULATED: usize = 30;

/// Runs one in this number of cases of a part, or prints that the CPU does not have the level.
fn run(part: &str, level: &'static str, one_in: usize) {
    let make = |threads| -> Result<Backend, Error> { Cpu::backend(Level::named(level)?, threads) };
    match Suite::new(&make, seed()) {
        Ok(suite) => run_part(part, level, suite.drawn_formats(DRAWN_FORMATS).one_in(one_in).repeated(Repeats::One)),
        Err(Error::Level(_)) => skipped(format_args!("{part} on {level}: not on this machine")),
        Err(error) => panic!("{level}: {error}"),
    }
}

/// One module of tests for each level, one test for each part.
macro_rules! levels {
    ($($level:ident)*) => {
        $(
        mod $level {
            fn run(part: &str) {
                let level = stringify!($level);
                let is_lower = level != super::Level::best().name();
                super::run(part, level, if is_lower { super::LOWER_LEVELS } else { 1 });
            }
            gristmill_suite::with_parts!(parts);
        }
    )* };
}

macro_rules! parts {
    ($($part:ident = $module:ident::$function:ident,)*) => {
        $(#[test] fn $part() { run(stringify!($part)); })*
    };
}

gristmill_cpu::with_levels!(levels);

#[test]
#[ignore = "for the proofs: `cargo xtask prove mutations` breaks several formats at once, and asks which ones fail"]
fn products_of_each_format() {
    for level in Level::NAMES {
        let make = |threads| -> Result<Backend, Error> { Cpu::backend(Level::named(level)?, threads) };
        for &format in Format::ALL {
            let Ok(suite) = Suite::new(&make, seed()) else { continue };
            let part = ops::part("matmul").expect("a part of the suite");
            let failed = outcome(part, suite.of_formats(vec![format]).repeated(Repeats::One)).is_err();
            println!("{} {format} {level}", if failed { "failed" } else { "passed" });
        }
    }
}

#[test]
#[ignore = "for emulated CPUs: scripts/cross.sh runs it"]
fn few_cases_of_every_part() {
    for (part, _) in ops::ALL.iter().filter(|(part, _)| ops::is_checked(part)) {
        run(part, Level::best().name(), EMULATED);
    }
}

/// Parts with products of many rows, in which such levels differ from others.
const PRODUCTS: [&str; 8] =
    ["matmul", "matmul_joined", "matmul_rows", "matmul_extremes", "gate_up", "moe_gate_up", "moe_matmul", "experts"];

#[test]
#[ignore = "for an emulated CPU: scripts/amx.sh runs it"]
fn few_cases_of_unmeasured_levels() {
    for level in Level::UNMEASURED {
        for part in PRODUCTS {
            run(part, level, EMULATED);
        }
    }
}

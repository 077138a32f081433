//! The op suite on the simulated Metal device.

#![cfg(all(target_arch = "x86_64", unix))]

use gristmill_conformance::{op_suite, simulated::Simulator};

macro_rules! parts {
    ($($part:ident = $module:ident::$function:ident,)*) => {
        $(#[test] fn $part() { run(stringify!($part)); })*
    };
}

mod simulated {
    use super::{Simulator, op_suite};

    fn run(part: &str) {
        op_suite::simulated(part, "simulated Metal", &|threads| Simulator::metal(threads, gpu_sim::Mode::Fast));
    }

    gristmill_suite::with_parts!(parts);
}

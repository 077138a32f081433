//! Kernels of both GPUs in the simulator's checked mode, which looks at every access: bounds, alignment, races,
//! barriers. A fault is an error of the operation that launched the kernel.
//!
//! It is slow, so a run has one in N of the op suite's cases, others each time. All of them:
//! `cargo test --release -p gristmill-conformance --test checked -- --ignored`.
#![cfg(all(target_arch = "x86_64", unix))]

use gpu_sim::Mode;
use gristmill_conformance::simulated::{Simulator, order};
use gristmill_cuda::family::Family;
use gristmill_cuda::{Choice, Cuda, Options};
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_suite::ops;
use gristmill_suite::outcome;
use gristmill_suite::rng::Rng;
use gristmill_suite::suite::{Make, Repeats, Suite};
use gristmill_suite::testing::{self, fail_aloud};
use std::sync::LazyLock;

/// Formats of a run: each has units of its own, which take seconds to compile, so all parts have the same two.
static FORMATS: LazyLock<[Format; 2]> = LazyLock::new(|| {
    let mut rng = Rng::new(testing::seed());
    [(); 2].map(|()| rng.pick(Format::ALL))
});

fn run(part: &str, make: Make, one_in: usize) {
    if !ops::is_checked(part) {
        return;
    }
    let seed = testing::seed();
    let mut suite = Suite::new(make, seed).expect("a simulator").one_in(one_in);
    if one_in > 1 {
        suite = suite.repeated(Repeats::One);
        let precision = Rng::new(seed).pick(suite.precisions());
        suite = suite.multiplying(FORMATS.to_vec(), precision);
    }
    let backend = suite.backend().name();
    let worst = outcome(ops::part(part).unwrap_or_else(|| panic!("no part {part}")), suite);
    worst.unwrap_or_else(|message| fail_aloud(format_args!("{part} on {backend}, checked"), &message));
}

/// How many cases of a part there are to one that is run.
fn one_in(part: &str) -> usize {
    // Some of these take seconds.
    match part {
        "attention" | "attend" => 60,
        "attention_long" | "experts" | "qkv_write" => 30,
        _ => 12,
    }
}

macro_rules! parts {
    ($($part:ident = $module:ident::$function:ident,)*) => {
        $(#[test] fn $part() { run(stringify!($part), super::one_in(stringify!($part))); })*

        mod all {
            $(#[test] #[ignore = "minutes"] fn $part() { super::run(stringify!($part), 1); })*
        }
    };
}

macro_rules! backends {
    ($($backend:ident: $make:expr,)*) => { $(
        mod $backend {
            fn run(part: &str, one_in: usize) {
                super::run(part, &$make, one_in);
            }
            gristmill_suite::with_parts!(parts);
        }
    )* };
}

/// Kernels of one family. The module's name lets these tests start first, because they take longest.
mod by_family {
    use super::*;

    /// The suite's small products seldom take these kernels by themselves.
    #[test]
    fn wgmma() {
        let options = Options { choice: Choice::Family(Family::Wgmma) };
        let make = |threads| Cuda::backend(Simulator::new(order(threads), Mode::Checked), options);
        for part in ["matmul_rows", "gate_up", "moe_matmul", "experts"] {
            let suite = Suite::new(&make, testing::seed()).expect("a simulator").repeated(Repeats::One);
            let formats = vec![Rng::of_part(testing::seed(), part).pick(&[Format::Q4_K, Format::Q6_K, Format::Q5_0])];
            ops::part(part).expect("a part")(&suite.one_in(24).multiplying(formats, Precision::Fast));
        }
    }
}

backends! {
    cuda: |threads| super::Simulator::cuda(threads, super::Mode::Checked),
    metal: |threads| super::Simulator::metal(threads, super::Mode::Checked),
}

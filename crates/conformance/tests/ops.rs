//! The op suite on every backend of this machine.

use gristmill_kernels::Error;
use gristmill_kernels::cpu::{Cpu, Level};
use gristmill_kernels::gpu::cuda::Cuda;
use gristmill_kernels::gpu::cuda::driver::{self, Driver};
use gristmill_kernels::ops::Backend;
use gristmill_suite::ops::ALL;
use gristmill_suite::rng::Rng;
use gristmill_suite::suite::{Make, Suite, Worst};
use std::io::Write;

/// Set this to the seed that a failure printed, to see it again.
const SEED: Option<u64> = None;

fn seed() -> u64 {
    SEED.unwrap_or_else(Rng::fresh_seed)
}

/// Parts that need what Metal does not have yet: matrices, experts, attention.
const NOT_ON_METAL: &[&str] = &[
    "matmul",
    "matmul_joined",
    "matmul_rows",
    "matmul_extremes",
    "gate_up",
    "moe_gate_up",
    "moe_matmul",
    "attention",
    "kv_copy",
    "norm_act",
    "norm_matmul",
    "matmul_finish",
    "gate_up_act",
    "experts",
    "place_qkv",
    "attend",
    "refuse_matrices",
    "refuse_experts",
    "refuse_attention",
];

/// Runs a part of the suite, or says that the backend is not there.
fn run(part: &str, name: &str, make: Make) {
    let mut err = std::io::stderr();
    if name == "metal_sim" && NOT_ON_METAL.contains(&part) {
        let _ = writeln!(err, "skipped:  {part} on {name}: needs operations that are not there");
        return;
    }
    match Suite::new(make, seed()) {
        Ok(suite) => {
            let cases = ALL.iter().find(|(n, _)| *n == part).map(|(_, cases)| cases);
            cases.unwrap_or_else(|| panic!("no part {part}"))(&suite);
            // To stderr itself, which a test harness does not hide.
            for Worst { kind, nmse, bound } in suite.errors() {
                let _ = writeln!(err, "    {kind:<28} NMSE {nmse:.1e} of {bound:.1e}  ({})", suite.backend().name());
            }
            let _ = writeln!(err, "executed: {part} on {name}");
        }
        // A CPU without the level cannot run it: counted as skipped, and said.
        Err(Error::Level(_)) => {
            let _ = writeln!(err, "skipped:  {part} on {name}: not on this machine");
        }
        Err(Error::Device { .. }) if name == "cuda" && driver::count().is_ok_and(|devices| devices == 0) => {
            let _ = writeln!(err, "skipped:  {part} on {name}: no such device on this machine");
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

/// One module of tests for each backend, one test for each part.
macro_rules! backends {
    ($($backend:ident: $make:expr,)*) => {
        #[test]
        fn every_level_of_this_architecture_is_here() {
            assert!(Level::NAMES.iter().all(|name| [$(stringify!($backend)),*].contains(name)));
        }
        $(
        mod $backend {
            fn run(part: &str) {
                super::run(part, stringify!($backend), &$make);
            }
            parts! {
                matmul matmul_joined matmul_rows matmul_extremes gate_up moe_gate_up moe_matmul moe_combine
                group_by_expert route embed rms_norm layer_norm qk_norm rope add scale copies argmax sample
                sample_distribution attention kv_copy norm_act norm_matmul matmul_finish gate_up_act experts
                route_and_group place_qkv attend
                refuse_matrices refuse_experts refuse_rows refuse_attention refuse_memory
            }
        }
    )* };
}

macro_rules! parts {
    ($($part:ident)*) => {
        $(#[test] fn $part() { run(stringify!($part)); })*

        #[test]
        fn every_part_is_run() {
            assert_eq!(gristmill_suite::ops::ALL.len(), [$(stringify!($part)),*].len());
        }
    };
}

fn cpu(level: &'static str, threads: usize) -> gristmill_kernels::Result<Box<dyn Backend>> {
    Ok(Box::new(Cpu::new(Level::named(level)?, threads)?))
}

#[cfg(all(target_arch = "x86_64", unix))]
fn simulated(threads: usize) -> gristmill_kernels::Result<Box<dyn Backend>> {
    Ok(Box::new(gristmill_conformance::simulated::Simulator::backend(threads, gpu_sim::Mode::Fast)?))
}

#[cfg(all(target_arch = "x86_64", unix))]
fn simulated_metal(threads: usize) -> gristmill_kernels::Result<Box<dyn Backend>> {
    Ok(Box::new(gristmill_conformance::simulated::Simulator::metal(threads, gpu_sim::Mode::Fast)?))
}

fn cuda() -> gristmill_kernels::Result<Box<dyn Backend>> {
    Ok(Box::new(Cuda::new(Driver::open(0)?)?))
}

/// The simulator runs on x86-64 Unix machines only; elsewhere its line is skipped, like a level that is not there.
#[cfg(not(all(target_arch = "x86_64", unix)))]
fn simulated(_: usize) -> gristmill_kernels::Result<Box<dyn Backend>> {
    Err(Error::Level("simulator"))
}

/// As above.
#[cfg(not(all(target_arch = "x86_64", unix)))]
fn simulated_metal(_: usize) -> gristmill_kernels::Result<Box<dyn Backend>> {
    Err(Error::Level("simulator"))
}

backends! {
    reference: |_| Ok(Box::new(gristmill_kernels::reference::Reference)),
    portable: |threads| super::cpu("portable", threads),
    avx2: |threads| super::cpu("avx2", threads),
    avx512: |threads| super::cpu("avx512", threads),
    neon: |threads| super::cpu("neon", threads),
    cuda_sim: |threads| super::simulated(threads),
    metal_sim: |threads| super::simulated_metal(threads),
    cuda: |_| super::cuda(),
}

//! Families of CUDA's kernels, for the op suite with one of them forced
//! ([`gristmill_cuda::Options`]): what they take.

use gristmill_cuda::family::Family;
use gristmill_kernels::act::Precision;
use gristmill_suite::suite::Suite;

/// The parts of the suite that multiply.
pub const PARTS: [&str; 8] =
    ["matmul", "matmul_rows", "matmul_extremes", "gate_up", "moe_gate_up", "moe_matmul", "moe_one_expert", "experts"];

/// The suite with the weights and activations that a family takes.
pub fn limited(suite: Suite, family: Family) -> Suite {
    let formats = suite.formats().iter().copied().filter(|&format| family.takes(format)).collect();
    suite.multiplying(formats, Precision::Fast)
}

//! Weights whose experts are in host memory.

use gristmill_kernels::error::Result;
use gristmill_kernels::offload::HostWeight;
use gristmill_kernels::ops::{Experts, Operation};
use gristmill_kernels::weight::{Location, Weight};

const OP: &str = Experts::NAME;

/// The matrices of a weight in host memory.
pub(crate) fn on_host(weight: &Weight) -> Result<&HostWeight> {
    weight.storage(OP)
}

/// Whether the experts of a call are in host memory.
pub(crate) fn are_on_host(call: &Experts) -> bool {
    [call.weights.gate_up, call.weights.down].iter().any(|weight| weight.location() == Location::Host)
}

/// The slots of a weight in host memory, if it has some.
pub(crate) fn slots_of(weight: &Weight) -> Option<&Weight> {
    on_host(weight).ok()?.0.slots.as_ref()
}

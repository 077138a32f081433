//! Memory state of checked mode: which bytes a kernel may access, and which threads have accessed them.
//!
//! # Checked mode checks every access
//!
//! Checked mode checks every access: bounds, alignment, uninitialised reads, races, barriers. Barriers order a block,
//! or the memory that they name. `__syncwarp` orders a warp. Shuffles and simdgroup operations order nothing, and
//! blocks are never ordered. Asynchronous copies and products have clocks of their own. The simulator delays them until
//! a wait, so a missing wait gives wrong results even in fast mode. *Each seed checks other cases of the suite
//! (`conformance/tests/checked.rs`). A barrier whose absence no case detects is deleted, or has the comment `// Orders
//! nothing`.*

mod checks;
mod clocks;
mod history;
mod memory;
mod who;

pub(crate) use checks::Checks;
pub(crate) use clocks::{Actor, COPIES, Clock, PRODUCTS};
pub(crate) use history::Touch;
pub(crate) use memory::Buffer;
pub(crate) use who::{Shared, Who};

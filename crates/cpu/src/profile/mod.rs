//! Timing of each operation and of each thread in it. A [`Cpu`](crate::Cpu) measures only if it has a [`Profile`].
//!
//! # One timer serves all operations
//!
//! With a `Profile`, each checked call is measured, with the minimum of bytes and operations that its arguments need.
//! Without a `Profile`, the timer costs one branch for an operation and one for a pool job.

mod measured;
mod record;
mod work;

pub use record::{Profile, Record, Work};
pub(crate) use work::{Measured, words};

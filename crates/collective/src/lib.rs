//! Ranks that run one forward pass together, and what they exchange. [`Collective`] is the interface; [`threads()`] are ranks of one
//! process, [`Mpi`] is a rank that `mpirun` started; [`Nccl`] is a CUDA device, whose calls are work of its streams.
//!
//! # Sums have one order
//!
//! Float addition is not associative, so a sum is added in the order of ranks, from rank 0 on. Each rank gets the same bits, and
//! each run does. A model's tokens then depend on the number of ranks, but not on which rank was fast.
//!
//! # A rank that is missing is an error, not a hang
//!
//! Every wait has a deadline. When a rank fails, is lost, or calls something else than the others, all ranks get the same error, now
//! and in each later call. There is no way back from it: the ranks no longer know which calls the others made.

#![deny(unsafe_code)]

mod call;
mod collective;
mod error;
mod mpi;
mod nccl;
mod repeat;
mod threads;

pub use collective::Collective;
pub use error::Error;
pub use mpi::Mpi;
pub use nccl::{Nccl, NcclGroup, NcclLibrary, disable_multicast};
pub use repeat::Repeat;
pub use threads::{Threads, threads};

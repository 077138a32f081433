//! Ranks that are processes, on one machine or several, over Open MPI.
//!
//! # Messages between pairs, not MPI's collectives
//!
//! `MPI_Allreduce` adds in an order that depends on the number of ranks, the size and the version; its result is not the sum of
//! [`threads`](crate::threads()). And MPI's collectives wait without a deadline. So each call sends messages between pairs, and
//! adds in the order of ranks. With two ranks that is one message each way; with more, long sums are computed in slices, one on each
//! rank, and then gathered. Both have the same bits.
//!
//! # One queue of all messages
//!
//! A waiting rank receives whatever comes, from any rank. So it learns of a failure while it waits for another rank, a send
//! completes while its receiver waits for something else, and calls of different ranks are compared by their headers instead of
//! overwriting a buffer.

mod library;
mod message;
mod peers;
mod rank;

pub use rank::Mpi;

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
//!
//! # A rank that hangs is not a rank that computes
//!
//! A step of a CPU can take minutes, so a deadline cannot say whether a rank hangs. Each rank has a thread that shows the others a sign of
//! life, whatever its other threads do. A rank that shows none for four seconds is lost: its process is stopped, its machine has no
//! power, or the network is cut. Time in which this process itself was stopped does not count.

mod library;
mod message;
mod peers;
mod pulse;
mod rank;
mod state;

pub use rank::Mpi;

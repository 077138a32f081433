use crate::Error;
use std::fmt::Debug;

/// One of the ranks that run the same pass. Every rank makes the same calls in the same order; of a [`send`](Self::send), the other
/// rank makes the [`receive`](Self::receive).
pub trait Collective: Send + Sync + Debug {
    /// This rank, from 0 on.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Replaces `values` by their sums over all ranks, added in the order of ranks: the same bits on every rank and in every run.
    ///
    /// # Errors
    /// A rank that is lost, late, or calls something else.
    fn all_reduce(&self, values: &mut [f32]) -> Result<(), Error>;

    /// Writes the parts of all ranks one after another, in the order of ranks.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and if `all` has not `size × part.len()` values.
    fn all_gather(&self, part: &[f32], all: &mut [f32]) -> Result<(), Error>;

    /// Replaces `bytes` by those of rank `root`, of any length.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and if there is no rank `root`.
    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<(), Error>;

    /// As [`broadcast`](Self::broadcast), but without a deadline as long as all ranks live: for a root that has nothing to do for
    /// hours, and ranks that wait for it.
    ///
    /// # Errors
    /// A rank that is lost or calls something else, and if there is no rank `root`.
    fn await_broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<(), Error>;

    /// Sends `values` to a rank that receives as many. It may return before they are received.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and if there is no rank `to`.
    fn send(&self, to: usize, values: &[f32]) -> Result<(), Error>;

    /// Receives the values of the earliest [`send`](Self::send) of rank `from` to this rank that was not yet received.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and if there is no rank `from`, or it sent another number of values.
    fn receive(&self, from: usize, values: &mut [f32]) -> Result<(), Error>;

    /// Looks whether the group has failed: for a rank that makes no calls at the moment, from any thread.
    ///
    /// # Errors
    /// The error of all later calls.
    fn look(&self) -> Result<(), Error>;

    /// Ends the group, because this rank failed: each later or waiting call of any rank returns [`Error::Lost`] with this rank and
    /// the reason, unless the group failed before.
    fn abort(&self, reason: &str);
}

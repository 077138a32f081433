//! What a device needs to sum with other devices without the host.

use gristmill_kernels::error::Result;
use std::fmt::Debug;
use std::time::Duration;

/// A driver's library of collectives: [`crate::Gpu::rank_link`].
pub trait RankLink {
    /// Names a new group, for all its devices to join.
    fn name_group(&self) -> Result<Vec<u8>>;
    /// Joins a group and waits for the other devices, which join on threads or in processes of their own.
    fn join(&self, group: &[u8], rank: usize, size: usize, deadline: Duration) -> Result<Box<dyn GroupMember>>;
}

/// A device that has joined a group. Its work is done in the order of the device's other work, and can be captured. Addresses are
/// checked as those of [`crate::Gpu`].
pub trait GroupMember: Debug + Send + Sync {
    /// The library with its version, for people.
    fn library(&self) -> String;
    /// Replaces values by their sums over all devices, in an order that the library chooses. All devices get the same bits.
    fn all_reduce(&self, address: u64, values: usize) -> Result<()>;
    /// Writes the values of all devices one after another, in the order of ranks.
    fn all_gather(&self, from: u64, to: u64, values: usize) -> Result<()>;
    /// Whether no work has failed after it was submitted. From any thread.
    fn check(&self) -> Result<()>;
    /// Ends work that waits for other devices, with arbitrary values, and refuses later work. From any thread.
    fn abort(&self, reason: &str);
}

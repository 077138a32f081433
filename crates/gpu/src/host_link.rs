//! What a device needs to work together with threads of the host while it runs.

use gristmill_kernels::error::Result;

/// A driver's pinned memory and its second queue for copies: [`crate::Gpu::host_link`].
pub trait HostLink {
    /// Pinned host memory, zeroed and aligned to 256 bytes, that kernels and the host read and write at the same time. Its
    /// address is the host's too. `bytes > 0`.
    fn allocate_pinned(&self, bytes: usize, what: &'static str) -> Result<u64>;
    /// Frees what [`HostLink::allocate_pinned`] returned, once the work that was submitted before is done.
    fn free_pinned(&self, address: u64);
    /// Pins memory of the caller, which keeps it until [`HostLink::unpin`], so that copies from it have the link's speed. False if
    /// the system refuses.
    fn pin(&self, bytes: &[u8]) -> Result<bool>;
    /// Ends [`HostLink::pin`] of memory at this address.
    fn unpin(&self, address: u64);
    /// Copies pieces from the host while submitted work runs, and returns when they have arrived. From any thread. Submitted work
    /// does not use the targets.
    fn write_overlapped(&self, pieces: &[(u64, &[u8])]) -> Result<()>;
}

//! Runtime faults of a kernel.

use std::fmt;

/// The kinds of faults. Those from `OutOfBounds` on are detected in checked mode; fast mode detects a few of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Deadlock: threads wait for each other, and none can continue.
    Deadlock,
    /// A shuffle, vote or matrix operation of a warp with a missing lane.
    Collective,
    /// A misaligned address. (In fast mode: only of copies and `ldmatrix`.)
    Misaligned,
    /// A barrier in shared memory that does not exist, exists already, or receives more arrivals than it counts.
    Phase,
    /// The kernel exceeds a limit of the device.
    Limit,
    /// An access outside of all arguments and shared variables, or an index outside of its array.
    OutOfBounds,
    /// A read of shared memory that the block has not written.
    Uninitialised,
    /// A write to an argument that is declared as read-only, or a read of unwritten memory that is declared as written.
    Undeclared,
    /// An access to memory of a copy, or to memory or registers of a product, before the thread has waited for it.
    InFlight,
    /// An access to memory of an asynchronous copy or product, or to registers of a product, without the required
    /// fence.
    Unfenced,
    /// An access, before the thread's wait, to an argument that earlier launches can still use; or a constant read of
    /// memory that the launch writes.
    Early,
    /// Two lanes of a warp access the same byte, at least one writes, and no `__syncwarp` or barrier orders the
    /// accesses.
    RaceInWarp,
    /// Two warps of a block conflict on a byte without a barrier.
    RaceInBlock,
    /// Two blocks conflict on a byte, and not both accesses are atomic.
    RaceInGrid,
    /// Threads of a block wait at barriers in different lines, or some threads have finished.
    Divergence,
    /// Arithmetic without a defined result: division by zero, or a shift that is too large.
    Undefined,
}

/// A location in the kernel source: the innermost line, and the lines of its callers as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Source name from `#line`, and line number from 1. Empty if unknown.
    pub lines: Vec<(String, u32)>,
}

/// A fault with its source location and thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub kind: Kind,
    /// A description.
    pub message: String,
    /// The source location.
    pub place: Place,
    /// Index of the thread in its block.
    pub thread: [u32; 3],
    /// Index of the block.
    pub block: [u32; 3],
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(((file, line), callers)) = self.lines.split_first() else { return f.write_str("somewhere") };
        write!(f, "{file}:{line}")?;
        callers.iter().try_for_each(|(file, line)| write!(f, " from {file}:{line}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, message, place, thread, block } = self;
        write!(f, "{place}: {message} ({kind:?}); block {block:?}, thread {thread:?}")
    }
}

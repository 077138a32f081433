//! Faults of a kernel while it runs.

use std::fmt;

/// The kinds of faults. Those from `OutOfBounds` on are noticed in checked mode, few of them also in fast mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Threads wait for each other, and none can continue.
    Deadlock,
    /// A shuffle, vote or matrix operation of a warp in which a lane is missing.
    Collective,
    /// An address that is not a multiple of what is read or written there. (In fast mode: of copies and `ldmatrix`.)
    Misaligned,
    /// A barrier in shared memory that is not there, is there already, or to which more come than it counts.
    Phase,
    /// A limit of the device is exceeded.
    Limit,
    /// Memory of no argument and no shared variable, or an index outside of its array.
    OutOfBounds,
    /// A read of shared memory that the block has not written.
    Uninitialised,
    /// A write to an argument that is declared as read, or a read of what is declared as written and was not.
    Undeclared,
    /// Memory of a copy, or memory and registers of a product, that the thread has not waited for.
    InFlight,
    /// Memory of an asynchronous copy or product, or registers of a product, without the fence that is needed.
    Unfenced,
    /// An argument that launches before may still use, touched before the thread has waited for them; or taken for a
    /// constant and written by the launch itself.
    Early,
    /// Two lanes of a warp touch the same byte, one of them writes, and no `__syncwarp` or barrier is between.
    RaceInWarp,
    /// The same between two warps of a block, without a barrier.
    RaceInBlock,
    /// The same between two blocks, not both by atomic operations.
    RaceInGrid,
    /// Threads of a block wait at barriers in different lines, or some have ended.
    Divergence,
    /// Arithmetic without a defined result: a division by zero, a shift by too much.
    Undefined,
}

/// A place in the kernel source: the innermost line, and the lines of those that called the function it is in, as far
/// as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Source name, as `#line` gives it, and line, from 1. Empty if unknown.
    pub lines: Vec<(String, u32)>,
}

/// A fault, with its place and the thread in which it showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which kind.
    pub kind: Kind,
    /// A description.
    pub message: String,
    /// Where.
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

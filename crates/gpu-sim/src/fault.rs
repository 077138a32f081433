//! What a kernel did wrong while it ran.

use std::fmt;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Threads wait for each other, and none can go on.
    Deadlock,
    /// Threads of a block that should do the same do different things.
    Divergence,
    /// A shuffle, vote or matrix operation of a warp in which a lane is missing.
    Collective,
    /// An address that is not a multiple of what is read or written there.
    Misaligned,
    /// More than a device has.
    Limit,
}

/// A fault, with its place in the kernel's text and the thread in which it showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which kind.
    pub kind: Kind,
    /// What was wrong.
    pub message: String,
    /// The text's name, as `#line` gives it.
    pub file: String,
    /// The line, from 1; 0 if it is not known.
    pub line: u32,
    /// Index of the thread in its block.
    pub thread: [u32; 3],
    /// Index of the block.
    pub block: [u32; 3],
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, file, line, thread, block, .. } = self;
        write!(f, "{file}:{line}: {message}; block {block:?}, thread {thread:?}")
    }
}

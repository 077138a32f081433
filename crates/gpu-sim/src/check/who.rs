//! Who accesses what, and the fault of an access.

use super::clocks::Actor;
use crate::fault::Kind;
use std::ops::Range;

/// The origin of an access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    /// Number in the block.
    pub(crate) thread: u32,
    /// Actor and beat of an asynchronous operation.
    pub(crate) on_behalf_of: Option<(Actor, u32)>,
    /// Offset of the return address in the code.
    pub(crate) code: u32,
}

/// The block's shared memory: where it starts, its size, and the parts that are in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) begin: usize,
    pub(crate) bytes: usize,
    pub(crate) ranges: &'a [Range<usize>],
}

/// The fault of an access; the earlier one, if there is one: who, and offset in the code.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) kind: Kind,
    pub(crate) what: String,
    pub(crate) earlier: Option<(Actor, u32)>,
}

pub(super) fn no_memory(error: std::io::Error) -> Wrong {
    Wrong { kind: Kind::Limit, what: format!("no memory to remember accesses: {error}"), earlier: None }
}

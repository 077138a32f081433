//! Limits of a grid.

use gristmill_kernels::error::{Error, Result};

/// Most blocks in x of a grid; in y and z there may be 65,535.
pub(super) const MOST_BLOCKS: usize = i32::MAX as usize;
pub(super) const MOST_BLOCKS_Y: usize = 65_535;

/// A number that a launch can count to.
pub(super) fn count(op: &'static str, what: &'static str, found: usize, most: usize) -> Result<u32> {
    let rule = "more than one launch can hold; use smaller batches";
    let number = u32::try_from(found).ok().filter(|_| found <= most);
    number.ok_or_else(|| Error::Range { op, what, found: found.to_string(), rule })
}

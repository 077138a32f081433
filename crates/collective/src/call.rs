//! What all ranks must call alike, and the values that they exchange as bytes.

use std::fmt;

/// A call as other ranks see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Call {
    pub(crate) operation: &'static str,
    /// Values of the arguments, or the root of a broadcast.
    pub(crate) number: usize,
}

pub(crate) const ALL_REDUCE: &str = "all_reduce";
pub(crate) const ALL_GATHER: &str = "all_gather";
pub(crate) const BROADCAST: &str = "broadcast";
pub(crate) const SEND: &str = "send";
pub(crate) const RECEIVE: &str = "receive";

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.operation == BROADCAST { "from rank" } else { "of values:" };
        write!(out, "{} {of} {}", self.operation, self.number)
    }
}

pub(crate) fn floats_of(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}

/// Replaces the values of rank `own` by the sums over all ranks' parts, in the order of ranks. `parts[own]` is not read.
pub(crate) fn sum_in_order<'a>(values: &mut [f32], own: usize, parts: impl ExactSizeIterator<Item = &'a [u8]>) {
    if parts.len() < 2 {
        return;
    }
    let mut sums = vec![0.0; values.len()];
    for (rank, part) in parts.enumerate() {
        let add = |(sum, value): (&mut f32, f32)| *sum = if rank == 0 { value } else { *sum + value };
        if rank == own {
            sums.iter_mut().zip(values.iter().copied()).for_each(add);
        } else {
            sums.iter_mut().zip(floats_of(part)).for_each(add);
        }
    }
    values.copy_from_slice(&sums);
}

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

/// Values that are summed at once, in a buffer that stays in the first cache.
const BLOCK: usize = 1024;

/// Replaces the values of rank `own` by the sums over all ranks' parts, in the order of ranks. `parts[own]` is not read.
pub(crate) fn sum_in_order(values: &mut [f32], own: usize, parts: &[&[u8]]) {
    for (number, block) in values.chunks_mut(BLOCK).enumerate() {
        let mut sums = [0.0; BLOCK];
        let sums = &mut sums[..block.len()];
        let start = number * BLOCK * size_of::<f32>();
        for (rank, part) in parts.iter().enumerate() {
            let part = if rank == own { bytemuck::cast_slice(block) } else { &part[start..][..size_of_val(block)] };
            match rank {
                0 => sums.iter_mut().zip(floats_of(part)).for_each(|(sum, value)| *sum = value),
                _ => sums.iter_mut().zip(floats_of(part)).for_each(|(sum, value)| *sum += value),
            }
        }
        block.copy_from_slice(sums);
    }
}

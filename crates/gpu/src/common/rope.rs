//! Rotary position embedding: `kernels/rope.h`.

use super::grid::{MOST_BLOCKS, MOST_BLOCKS_Y, count};
use gristmill_kernels::error::Result;

use crate::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{Operation, Rope, RopeStyle};

shared_struct! {
    pub(super) struct RopeParams {
        x_stride: u64,
        positions_stride: u64,
        heads: u32,
        head_width: u32,
        pairs: u32,
        interleaved: u32,
        // Threads side by side on the pairs of a head, and heads of a block.
        pair_threads: u32,
        block_heads: u32,
        magnitude: f32,
        // Elements of a head before those that are rotated.
        first: u32,
    }
}

/// Threads of a block.
const THREADS: usize = 256;
/// With as many rows, a block turns all heads of its row with the same angles; with fewer, heads are spread over
/// blocks.
const MANY_ROWS: usize = 256;

on_device! { rope(Rope) }

pub(crate) fn rope(device: &Device, call: Rope) -> Result<()> {
    let Rope { x, head_width, first, positions, rotary } = call;
    let op = Rope::NAME;
    let pairs = rotary.frequencies.len();
    let heads = x.cols() / head_width;
    if x.rows() == 0 || pairs == 0 || heads == 0 {
        return Ok(());
    }
    let pair_threads = pairs.next_multiple_of(32).min(THREADS);
    let groups = THREADS / pair_threads;
    let block_heads = if x.rows() < MANY_ROWS { groups } else { heads.max(groups) };
    let params = RopeParams {
        x_stride: x.layout().stride() as u64,
        positions_stride: positions.layout().stride() as u64,
        heads: count(op, "heads", heads, MOST_BLOCKS)?,
        head_width: count(op, "head width", head_width, MOST_BLOCKS)?,
        pairs: pairs as u32,
        interleaved: (rotary.style == RopeStyle::Interleaved).into(),
        pair_threads: pair_threads as u32,
        block_heads: count(op, "heads", block_heads, MOST_BLOCKS)?,
        magnitude: rotary.magnitude,
        first: count(op, "elements before the rotated ones", first, MOST_BLOCKS)?,
    };
    let grid =
        [count(op, "rows", x.rows(), MOST_BLOCKS)?, count(op, "heads", heads.div_ceil(block_heads), MOST_BLOCKS_Y)?, 1];
    let frequencies = Arg::buffer(&rotary.frequencies, Access::Read);
    let args = [Arg::change(&x), Arg::read(&positions), frequencies, Arg::params(&params)];
    device.launch(&Launch::new(Kernel::plain("rows.gpu", "rope"), grid, (pair_threads * groups) as u32, &args))
}

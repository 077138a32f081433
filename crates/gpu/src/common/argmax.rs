//! The largest of each row: `kernels/argmax.h`.

use super::grid::{MOST_BLOCKS, count};
use gristmill_kernels::error::Result;

use crate::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{Argmax, Operation};

/// Elements of a row that a block reads: `SEGMENT` in the source.
pub(super) const SEGMENT: usize = 2048;
/// Threads of a block.
const BLOCK: u32 = 256;

shared_struct! {
    pub(super) struct ArgmaxParams {
        // Columns, and elements from one row to the next.
        cols: u64,
        x_stride: u64,
        out_stride: u64,
        rows: u32,
        segments: u32,
    }
}

on_device! { argmax(Argmax) }

pub(crate) fn argmax(device: &Device, call: Argmax) -> Result<()> {
    let Argmax { x, out } = call;
    if x.rows() == 0 {
        return Ok(());
    }
    let segments = x.cols().div_ceil(SEGMENT);
    let blocks = count(Argmax::NAME, "segments of rows", x.rows().saturating_mul(segments), MOST_BLOCKS)?;
    let best = device.workspace(size_of::<u64>() * blocks as usize)?;
    let params = ArgmaxParams {
        cols: x.cols() as u64,
        x_stride: x.layout().stride() as u64,
        out_stride: out.layout().stride() as u64,
        rows: x.rows() as u32,
        segments: segments as u32,
    };
    let parameters = Arg::params(&params);
    let args = [Arg::read(&x), Arg::region(&best, Access::Write), parameters];
    launch(device, "argmax_segments", blocks, &args)?;
    let args = [Arg::region(&best, Access::Read), Arg::write(&out), parameters];
    launch(device, "argmax_rows", params.rows.div_ceil(BLOCK / 32), &args)
}

/// Launches a kernel of `sample.gpu`.
pub(super) fn launch(device: &Device, entry: &'static str, blocks: u32, args: &[Arg]) -> Result<()> {
    device.launch(&Launch::new(Kernel::plain("sample.gpu", entry), [blocks, 1, 1], BLOCK, args))
}

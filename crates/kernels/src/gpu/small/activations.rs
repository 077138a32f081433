//! Rows as activations: `kernels/activations.gpu`.

use crate::act::Act;
use crate::check;
use crate::error::Result;
use crate::gpu::product::word;
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
use crate::tensor::View;

/// Parts of activations: `ActPart` in the text.
pub(crate) const EXACT: u32 = 1;
const ROUNDED: u32 = 2;
pub(crate) const OTHER: u32 = 4;

/// What activations have beside the exact copy: int8 and bf16, if they were allocated.
pub(crate) fn beside(act: &Act) -> u32 {
    if act.int8.is_empty() { 0 } else { ROUNDED }
}

twin! {
    #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(super) struct QuantiseParams in "activations.gpu" {
        x_stride: u64,
        rows: u32,
        cols: u32,
        wide: u32,
        parts: u32,
    }
}

/// [`crate::ops::Backend::prepare_activations`], checked.
pub(crate) fn prepare_activations(device: &Device, x: View<f32>, act: &mut Act) -> Result<()> {
    let op = "prepare_activations";
    (act.rows, act.cols) = (x.rows(), x.cols());
    if x.rows() == 0 || x.cols() == 0 {
        return Ok(());
    }
    let (rows, cols) = (word(op, "rows", x.rows())?, word(op, "columns", x.cols())?);
    let shape = x.shape();
    let wide = [shape.span().start, shape.stride(), x.cols()].iter().all(|n| n.is_multiple_of(4));
    let params = QuantiseParams { x_stride: shape.stride() as u64, rows, cols, wide: wide.into(), parts: beside(act) };
    let (int8, bf16) = (Arg::buffer(&act.int8, Access::Write), Arg::buffer(&act.bf16, Access::Write));
    let args = [Arg::read(&x), Arg::buffer(&act.exact, Access::Write), int8, bf16, Arg::params(&params)];
    // Eight threads for 32 elements of a row.
    let blocks = check::elements("activations", &[x.rows(), x.cols().div_ceil(32)])?;
    const THREADS: usize = 128;
    device.launch(&Launch {
        kernel: Kernel { file: "activations.gpu", entry: "prepare_activations", defines: &[] },
        grid: [word(op, "blocks", blocks.div_ceil(THREADS / 8))?, 1, 1],
        block: THREADS as u32,
        shared: 0,
        overlap: true,
        args: &args,
    })
}

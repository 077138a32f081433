//! Sums and products, element by element, and the combination of experts: `kernels/elementwise.h`.

use super::{MOST_BLOCKS, MOST_BLOCKS_Y, Rows, count, wide};
use crate::error::Result;
use crate::gpu::finish::{Finish, FinishParams};
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
use crate::tensor::{Buffer, View, ViewMut};
use bytemuck::{Pod, Zeroable};

/// Columns of a block: four for each thread.
const BLOCK_COLUMNS: usize = 4 * BLOCK as usize;
const BLOCK: u32 = 128;

twin! {
    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    pub(super) struct ElementsParams in "elementwise.h" {
        rows: u64,
        cols: u64,
        x_stride: u64,
        y_stride: u64,
        gate_stride: u64,
        scale: f32,
        wide: u32,
    }
}

impl ElementsParams {
    /// For an output alone.
    fn of(y: &ViewMut<f32>) -> Self {
        Self {
            rows: y.rows() as u64,
            cols: y.cols() as u64,
            x_stride: 0,
            y_stride: y.shape().stride() as u64,
            gate_stride: 0,
            scale: 1.0,
            wide: wide(y.cols(), [Rows::of_mut(y)]),
        }
    }

    /// For an input and an output.
    fn of_two(x: &View<f32>, y: &ViewMut<f32>) -> Self {
        let wide = wide(y.cols(), [Rows::of(x), Rows::of_mut(y)]);
        Self { x_stride: x.shape().stride() as u64, wide, ..Self::of(y) }
    }
}

/// One block for each row and [`BLOCK_COLUMNS`]; none for no elements.
fn launch(device: &Device, entry: &'static str, y: &ViewMut<f32>, args: &[Arg]) -> Result<()> {
    if y.rows() == 0 || y.cols() == 0 {
        return Ok(());
    }
    let rows = count(entry, "rows", y.rows(), MOST_BLOCKS)?;
    let columns = count(entry, "blocks of columns", y.cols().div_ceil(BLOCK_COLUMNS), MOST_BLOCKS_Y)?;
    let kernel = Kernel { file: "rows.gpu", entry, defines: &[] };
    device.launch(&Launch { kernel, grid: [rows, columns, 1], block: BLOCK, shared: 0, overlap: true, args })
}

/// [`crate::ops::Backend::add`], checked.
pub(crate) fn add(device: &Device, x: View<f32>, scale: f32, y: ViewMut<f32>) -> Result<()> {
    let params = ElementsParams { scale, ..ElementsParams::of_two(&x, &y) };
    launch(device, "add_rows", &y, &[Arg::read(&x), Arg::change(&y), Arg::params(&params)])
}

/// [`crate::ops::Backend::add_gated`], checked.
pub(crate) fn add_gated(device: &Device, x: View<f32>, gate: View<f32>, y: ViewMut<f32>) -> Result<()> {
    let gate_stride = gate.shape().stride() as u64;
    let params = ElementsParams { gate_stride, ..ElementsParams::of_two(&x, &y) };
    launch(device, "add_gated", &y, &[Arg::read(&x), Arg::read(&gate), Arg::change(&y), Arg::params(&params)])
}

/// [`crate::ops::Backend::add_bias`], checked.
pub(crate) fn add_bias(device: &Device, bias: &Buffer<f32>, y: ViewMut<f32>) -> Result<()> {
    let params = ElementsParams::of(&y);
    let args = [Arg::buffer(bias, Access::Read), Arg::change(&y), Arg::params(&params)];
    launch(device, "add_bias", &y, &args)
}

/// [`crate::ops::Backend::scale`], checked.
pub(crate) fn scale(device: &Device, scale: f32, y: ViewMut<f32>) -> Result<()> {
    let params = ElementsParams { scale, ..ElementsParams::of(&y) };
    launch(device, "scale_rows", &y, &[Arg::change(&y), Arg::params(&params)])
}

twin! {
    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    pub(super) struct CombineParams in "elementwise.h" {
        rows: u64,
        cols: u64,
        out_stride: u64,
        weights_stride: u64,
        y_stride: u64,
        top_k: u32,
        wide: u32,
        finish: FinishParams,
        padding: u32,
    }
}

/// [`crate::ops::Backend::moe_combine`], checked, whose answer is stored or added.
pub(crate) fn moe_combine(
    device: &Device,
    out: View<f32>,
    weights: View<f32>,
    finish: Finish,
    y: ViewMut<f32>,
) -> Result<()> {
    let params = CombineParams {
        rows: y.rows() as u64,
        cols: y.cols() as u64,
        out_stride: out.shape().stride() as u64,
        weights_stride: weights.shape().stride() as u64,
        y_stride: y.shape().stride() as u64,
        top_k: count("moe_combine", "top-k", weights.cols(), MOST_BLOCKS)?,
        wide: wide(y.cols(), [Rows::of(&out), Rows::of_mut(&y)]),
        finish: finish.into(),
        padding: 0,
    };
    let args = [Arg::read(&out), Arg::read(&weights), finish.output(&y), Arg::params(&params)];
    launch(device, "moe_combine", &y, &args)
}

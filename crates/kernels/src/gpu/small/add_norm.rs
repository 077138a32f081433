//! The residual stream's sum and norm, prepared as activations: `kernels/add_norm.h`.

use super::{MOST_BLOCKS, Rows, count, wide};
use crate::act::{Act, Precision};
use crate::error::Result;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
use crate::tensor::{Buffer, View, ViewMut};
use bytemuck::{Pod, Zeroable};

/// Elements of a row that one thread keeps: `KEPT` groups of four.
const THREAD_ELEMENTS: usize = 8;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct AddNormParams {
    width: u64,
    delta_stride: u64,
    residual_stride: u64,
    normed_stride: u64,
    scale: f32,
    eps: f32,
    wide: u32,
    padding: u32,
}

/// Whether one launch can do it: rows fit the registers of a block, and there is at most one of each sort of activations.
pub(crate) fn serves(width: usize, acts: &[&mut Act]) -> bool {
    let of = |precision| acts.iter().filter(|act| act.precision == precision).count();
    (1..=1024 * THREAD_ELEMENTS).contains(&width) && of(Precision::Fast) <= 1 && of(Precision::Exact) <= 1
}

/// [`crate::ops::Backend::add_norm`], checked, if [`serves`].
pub(crate) fn add_norm(
    device: &Device,
    delta: Option<(View<f32>, f32)>,
    residual: ViewMut<f32>,
    weight: &Buffer<f32>,
    eps: f32,
    normed: ViewMut<f32>,
    acts: &mut [&mut Act],
) -> Result<()> {
    let width = residual.cols();
    for act in acts.iter_mut() {
        (act.rows, act.cols) = (residual.rows(), width);
    }
    if residual.rows() == 0 {
        return Ok(());
    }
    let added = delta.as_ref().map(|(view, _)| view);
    let params = AddNormParams {
        width: width as u64,
        delta_stride: added.map_or(0, |view| view.shape().stride() as u64),
        residual_stride: residual.shape().stride() as u64,
        normed_stride: normed.shape().stride() as u64,
        scale: delta.map_or(0.0, |(_, scale)| scale),
        eps,
        wide: wide(
            width,
            [Rows::of_mut(&residual), Rows::of_mut(&normed), added.map_or_else(|| Rows::of_mut(&residual), Rows::of)],
        ),
        padding: 0,
    };
    let act = |precision| acts.iter().find(|act| act.precision == precision);
    let write = |buffer| Arg::buffer(buffer, Access::Write);
    let [exact, other] =
        [Precision::Fast, Precision::Exact].map(|precision| act(precision).map_or(Arg::Null, |act| write(&act.exact)));
    let int8 = act(Precision::Fast).map_or(Arg::Null, |act| Arg::buffer(&act.int8, Access::Write));
    let bf16 = act(Precision::Fast).map_or(Arg::Null, |act| Arg::buffer(&act.bf16, Access::Write));
    device.launch(&Launch {
        kernel: Kernel { file: "rows.cu", entry: "add_norm", defines: &[] },
        grid: [count("add_norm", "rows", residual.rows(), MOST_BLOCKS)?, 1, 1],
        block: width.div_ceil(THREAD_ELEMENTS).next_multiple_of(32) as u32,
        shared: 0,
        overlap: true,
        args: &[
            added.map_or(Arg::Null, Arg::read),
            Arg::change(&residual),
            Arg::buffer(weight, Access::Read),
            Arg::write(&normed),
            exact,
            int8,
            bf16,
            other,
            Arg::params(&params),
        ],
    })
}

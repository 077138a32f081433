//! Sums with rows that are normalised: `kernels/add_norm.h`.

use super::{MOST_BLOCKS, RowAlignment, aligned, count, norm_act};
use gristmill_kernels::error::Result;

use crate::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{AddNorm, Fused, Operation, RmsNorm};

shared_struct! {
    pub(super) struct AddNormParams in "add_norm.h" {
        width: u64,
        x_stride: u64,
        y_stride: u64,
        eps: f32,
        scale: f32,
        factor: f32,
        aligned: u32,
    }
}

/// [`AddNorm`] in one launch, if rows fit the registers of a block.
pub(crate) fn add_norm(device: &Device, call: &AddNorm) -> Result<Fused> {
    let AddNorm { norm: RmsNorm { x, weight, eps, .. }, scale, factor, y } = call;
    let Some(block) = norm_act::threads(x.cols()) else { return Ok(Fused::No) };
    if x.rows() == 0 {
        return Ok(Fused::Yes);
    }
    let params = AddNormParams {
        width: x.cols() as u64,
        x_stride: x.layout().stride() as u64,
        y_stride: y.layout().stride() as u64,
        eps: *eps,
        scale: *scale,
        factor: *factor,
        aligned: aligned(x.cols(), [RowAlignment::of(x), RowAlignment::of_mut(y)]),
    };
    let args = [Arg::read(x), Arg::buffer(weight, Access::Read), Arg::change(y), Arg::params(&params)];
    let blocks = count(AddNorm::NAME, "rows", x.rows(), MOST_BLOCKS)?;
    device.launch(&Launch::new(Kernel::plain("rows.gpu", "add_norm"), [blocks, 1, 1], block, &args))?;
    Ok(Fused::Yes)
}

//! Sums with rows that are normalised: `kernels/add_norm.h`.

use super::{MOST_BLOCKS, RowAlignment, aligned, count, norm_act};
use gristmill_kernels::error::Result;

use crate::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{AddNorm, AddNorms, Fused, Operation, RmsNorm};

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

shared_struct! {
    pub(super) struct AddNormsParams in "add_norm.h" {
        width: u64,
        first_stride: u64,
        second_stride: u64,
        y_stride: u64,
        first_eps: f32,
        second_eps: f32,
        eps: f32,
        scale: f32,
        factor: f32,
        aligned: u32,
    }
}

/// [`AddNorms`] in one launch, if rows fit the registers of a block.
pub(crate) fn add_norms(device: &Device, call: &AddNorms) -> Result<Fused> {
    let AddNorms { norms: [first, second], weight, eps, scale, factor, y } = call;
    let Some(block) = norm_act::threads(y.cols()) else { return Ok(Fused::No) };
    if y.rows() == 0 {
        return Ok(Fused::Yes);
    }
    let stride = |norm: &RmsNorm| norm.x.layout().stride() as u64;
    let rows = [RowAlignment::of(&first.x), RowAlignment::of(&second.x), RowAlignment::of_mut(y)];
    let params = AddNormsParams {
        width: y.cols() as u64,
        first_stride: stride(first),
        second_stride: stride(second),
        y_stride: y.layout().stride() as u64,
        first_eps: first.eps,
        second_eps: second.eps,
        eps: *eps,
        scale: *scale,
        factor: *factor,
        aligned: aligned(y.cols(), rows),
    };
    let weights = [first.weight, second.weight, weight].map(|weight| Arg::buffer(weight, Access::Read));
    let [first_weight, second_weight, weight] = weights;
    let (first, second) = (Arg::read(&first.x), Arg::read(&second.x));
    let args = [first, first_weight, second, second_weight, weight, Arg::change(y), Arg::params(&params)];
    let blocks = count(AddNorms::NAME, "rows", y.rows(), MOST_BLOCKS)?;
    device.launch(&Launch::new(Kernel::plain("rows.gpu", "add_norms"), [blocks, 1, 1], block, &args))?;
    Ok(Fused::Yes)
}

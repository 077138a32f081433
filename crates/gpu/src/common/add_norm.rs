//! Sums with rows that are normalised: `kernels/add_norm.h`.

use super::grid::{MOST_BLOCKS, count};
use super::norm_act;
use super::row_alignment::{RowAlignment, aligned};
use gristmill_kernels::error::Result;

use crate::storage::ActOutput;
use crate::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{AddNorm, AddNormAct, AddNorms, Fused, Operation, RmsNorm};
use gristmill_kernels::tensor::ViewMut;

shared_struct! {
    pub(super) struct AddNormParams {
        // Elements of a row, and from one row to the next.
        width: u64,
        x_stride: u64,
        y_stride: u64,
        eps: f32,
        scale: f32,
        factor: f32,
        aligned: u32,
    }
}

impl AddNormParams {
    fn of(call: &AddNorm) -> Self {
        let AddNorm { norm: RmsNorm { x, eps, .. }, scale, factor, y } = call;
        Self {
            width: x.cols() as u64,
            x_stride: x.layout().stride() as u64,
            y_stride: y.layout().stride() as u64,
            eps: *eps,
            scale: *scale,
            factor: *factor,
            aligned: aligned(x.cols(), [RowAlignment::of(x), RowAlignment::of_mut(y)]),
        }
    }
}

/// [`AddNorm`] in one launch, if rows fit the registers of a block.
pub(crate) fn add_norm(device: &Device, call: &AddNorm) -> Result<Fused> {
    let AddNorm { norm: RmsNorm { x, weight, .. }, y, .. } = call;
    let params = AddNormParams::of(call);
    let args = [Arg::read(x), Arg::buffer(weight, Access::Read), Arg::change(y), Arg::params(&params)];
    launch(device, AddNorm::NAME, "add_norm", y, &args)
}

/// A block of threads for each row of `y`, if rows fit its registers.
fn launch(device: &Device, op: &'static str, entry: &'static str, y: &ViewMut<f32>, args: &[Arg]) -> Result<Fused> {
    let Some(block) = norm_act::threads(y.cols()) else { return Ok(Fused::No) };
    if y.rows() == 0 {
        return Ok(Fused::Yes);
    }
    let blocks = count(op, "rows", y.rows(), MOST_BLOCKS)?;
    device.launch(&Launch::new(Kernel::plain("rows.gpu", entry), [blocks, 1, 1], block, args))?;
    Ok(Fused::Yes)
}

shared_struct! {
    pub(super) struct AddNormActParams {
        sum: AddNormParams,
        // The epsilon of the sum's norm, and whether it has one.
        eps: f32,
        normed: u32,
        // The parts that are written, of ActPart; the other pointers say nothing.
        parts: u32,
        padding: u32,
    }
}

/// [`AddNormAct`] in one launch, if rows fit the registers of a block.
pub(crate) fn add_norm_act(device: &Device, call: &AddNormAct) -> Result<Fused> {
    let AddNormAct { sum: add @ AddNorm { norm: RmsNorm { x, weight, .. }, y, .. }, next, act } = call;
    let act = ActOutput::new(AddNormAct::NAME, act)?;
    let params = AddNormActParams {
        sum: AddNormParams::of(add),
        eps: next.map_or(0.0, |(_, eps)| eps),
        normed: next.is_some().into(),
        parts: act.parts(),
        padding: 0,
    };
    let sum_weight = next.map_or(Arg::Null, |(weight, _)| Arg::buffer(weight, Access::Read));
    let x = Arg::read(x);
    let weight = Arg::buffer(weight, Access::Read);
    let y_arg = Arg::change(y);
    let [exact, int8, bf16] = act.storage.outputs();
    let args = [x, weight, y_arg, sum_weight, exact, int8, bf16, Arg::params(&params)];
    launch(device, AddNormAct::NAME, "add_norm_act", y, &args)
}

shared_struct! {
    pub(super) struct AddNormsParams {
        // Elements of a row, and from one row to the next.
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
    launch(device, AddNorms::NAME, "add_norms", y, &args)
}

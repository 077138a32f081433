//! Norms whose answer is prepared as activations: `kernels/norm_act.h`.

use super::{MOST_BLOCKS, Rows, activations, count, wide};
use crate::act::{Act, Precision};
use crate::error::Result;
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
use crate::ops::Norm;
use crate::tensor::{Buffer, ViewMut};
use bytemuck::{Pod, Zeroable};

/// Elements of a row that one thread keeps: `KEPT` groups of four.
const THREAD_ELEMENTS: usize = 8;

twin! {
    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    pub(super) struct NormActParams in "norm_act.h" {
        width: u64,
        x_stride: u64,
        normed_stride: u64,
        eps: f32,
        wide: u32,
        parts: u32,
        padding: u32,
    }
}

/// Whether one launch can do it: rows fit the registers of a block, and there is at most one of each sort of activations.
pub(crate) fn serves(width: usize, acts: &[&mut Act]) -> bool {
    (1..=1024 * THREAD_ELEMENTS).contains(&width) && one_of_each(acts)
}

/// Whether there is at most one of each sort of activations.
pub(crate) fn one_of_each(acts: &[&mut Act]) -> bool {
    let of = |precision| acts.iter().filter(|act| act.precision == precision).count();
    of(Precision::Fast) <= 1 && of(Precision::Exact) <= 1
}

/// Notes that activations of so many rows and columns are about to be written.
pub(crate) fn fill(acts: &mut [&mut Act], rows: usize, cols: usize) {
    acts.iter_mut().for_each(|act| (act.rows, act.cols) = (rows, cols));
}

/// The parts of activations, of which there is at most one of each sort: `exact`, `int8` and `bf16` of fast ones, `other` of
/// exact ones.
pub(crate) fn parts<'a>(acts: &'a [&mut Act]) -> [Arg<'a>; 4] {
    let act = |precision| acts.iter().find(|act| act.precision == precision);
    fn write<T: Copy>(buffer: &Buffer<T>) -> Arg<'_> {
        Arg::buffer(buffer, Access::Write)
    }
    let (fast, exact) = (act(Precision::Fast), act(Precision::Exact));
    [
        fast.map_or(Arg::Null, |act| write(&act.exact)),
        fast.map_or(Arg::Null, |act| write(&act.int8)),
        fast.map_or(Arg::Null, |act| write(&act.bf16)),
        exact.map_or(Arg::Null, |act| write(&act.exact)),
    ]
}

/// Which of [`parts`] are there.
fn there(acts: &[&mut Act]) -> u32 {
    let of = |act: &&mut Act| match act.precision {
        Precision::Fast => activations::EXACT | activations::beside(act),
        Precision::Exact => activations::OTHER,
    };
    acts.iter().map(of).fold(0, |all, one| all | one)
}

/// [`crate::ops::Backend::norm_act`], checked, if [`serves`].
pub(crate) fn norm_act(device: &Device, norm: Norm, normed: ViewMut<f32>, acts: &mut [&mut Act]) -> Result<()> {
    let (rows, width) = (norm.x.rows(), norm.x.cols());
    fill(acts, rows, width);
    if rows == 0 {
        return Ok(());
    }
    let params = NormActParams {
        width: width as u64,
        x_stride: norm.x.shape().stride() as u64,
        normed_stride: normed.shape().stride() as u64,
        eps: norm.eps,
        wide: wide(width, [Rows::of(&norm.x), Rows::of_mut(&normed)]),
        parts: there(acts),
        padding: 0,
    };
    let [exact, int8, bf16, other] = parts(acts);
    let weight = Arg::buffer(norm.weight, Access::Read);
    let args = [Arg::read(&norm.x), weight, Arg::write(&normed), exact, int8, bf16, other, Arg::params(&params)];
    device.launch(&Launch {
        kernel: Kernel { file: "rows.gpu", entry: "norm_act", defines: &[] },
        grid: [count("norm_act", "rows", rows, MOST_BLOCKS)?, 1, 1],
        block: width.div_ceil(THREAD_ELEMENTS).next_multiple_of(32) as u32,
        shared: 0,
        overlap: true,
        args: &args,
    })
}

//! A norm and the product that reads it in one launch, for steps of few tokens: the host side of `kernels/norm_matmul.h`.

use super::gemv::{self, BLOCK, team_log2};
use super::matmul::{part_args, runs};
use crate::act::Act;
use crate::error::Result;
use crate::gpu::finish::Finish;
use crate::gpu::layout;
use crate::gpu::product::{Bias, ProductParams, Which, bias_arg, word};
use crate::gpu::small::norm_act::fill;
use crate::gpu::small::{Rows, wide};
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
use crate::ops::Norm;
use crate::tensor::{Buffer, ViewMut};
use crate::weight::Weight;

/// A weight of more rows than this is large: bytes cost time, and one row of X at a time would read them again.
const SMALL: usize = 1024;
/// Rows of X that a small weight is read for.
const MOST_ROWS: usize = 8;
/// Weight rows of a team, and the kernel: for small weights, which want many blocks, and for large ones.
const SORTS: [(usize, &str); 2] = [(1, "norm_matmul_small"), (4, "norm_matmul")];
/// What a launch writes beside Y: `NormPart` in the text.
const NORMED: u32 = 1;
const ACT: u32 = 2;
const OTHER: u32 = 4;

twin! {
    #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(super) struct NormMatmulParams in "norm_matmul.h" {
        product: ProductParams,
        x_stride: u64,
        normed_stride: u64,
        eps: f32,
        wide: u32,
        parts: u32,
        padding: u32,
    }
}

/// Whether the kernel is for this product of so many rows.
pub(super) fn serves(w: &Weight, rows: usize) -> bool {
    rows == 1 || (2..=MOST_ROWS).contains(&rows) && w.rows() <= SMALL
}

/// [`crate::ops::Backend::norm_matmul`], checked, if [`serves`].
pub(super) fn norm_matmul(
    device: &Device,
    norm: Norm,
    normed: ViewMut<f32>,
    act: &mut Act,
    mut other: Option<&mut Act>,
    w: &Weight,
    bias: Option<&Buffer<f32>>,
    mut y: ViewMut<f32>,
) -> Result<()> {
    let op = "norm_matmul";
    let (rows, cols) = (norm.x.rows(), norm.x.cols());
    fill(&mut [&mut *act], rows, cols);
    other.iter_mut().for_each(|other| fill(&mut [&mut **other], rows, cols));
    fn write(act: &Act) -> Arg<'_> {
        Arg::buffer(&act.exact, Access::Write)
    }
    let (copies, all) = match &other {
        Some(other) => ([Arg::write(&normed), write(act), write(other)], NORMED | ACT | OTHER),
        None => ([Arg::write(&normed), write(act), Arg::Null], NORMED | ACT),
    };
    let mut first = 0;
    for run in runs(layout::parts(op, w)?) {
        let outputs: usize = run.iter().map(|part| part.rows).sum();
        let y = y.reborrow().columns(first..first + outputs)?;
        let bias = bias.map(|values| Bias { values, first, matrix: w.rows });
        let (team_rows, entry) = SORTS[usize::from(w.rows > SMALL)];
        let log2 = team_log2(run[0].spans);
        let (which, stride) = (Which::All, y.shape().stride());
        let params = NormMatmulParams {
            product: ProductParams::new(op, &run[0], act, which, bias, log2, Finish::Store, stride, rows)?
                .joined(op, run)?,
            x_stride: norm.x.shape().stride() as u64,
            normed_stride: normed.shape().stride() as u64,
            eps: norm.eps,
            wide: wide(cols, [Rows::of(&norm.x), Rows::of_mut(&normed)]),
            // The first launch writes what others read.
            parts: if first == 0 { all } else { 0 },
            padding: 0,
        };
        let [weight, second, third] = part_args(run);
        let [copy, exact, other] = if first == 0 { copies } else { [Arg::Null; 3] };
        let (x, norm) = (Arg::read(&norm.x), Arg::buffer(norm.weight, Access::Read));
        let args =
            [weight, second, third, x, norm, bias_arg(bias), Arg::write(&y), copy, exact, other, Arg::params(&params)];
        let defines = [("FORMAT", run[0].format.name())];
        let blocks = outputs.div_ceil(team_rows).div_ceil(BLOCK >> log2);
        device.launch(&Launch {
            kernel: Kernel { file: gemv::FILE, entry, defines: &defines },
            grid: [word(op, "blocks of outputs", blocks)?, rows as u32, 1],
            block: BLOCK as u32,
            shared: 0,
            overlap: true,
            args: &args,
        })?;
        first += outputs;
    }
    Ok(())
}

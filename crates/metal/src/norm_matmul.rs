//! A norm and the product that reads it in one launch, for steps of few tokens: the host side of `kernels/norm_matmul.h`.

use super::gemv::{self, BLOCK, team_log2};
use super::matmul::{part_args, runs};
use gristmill_gpu::common::{RowAlignment, aligned};
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::layout;
use gristmill_gpu::product::{Bias, ProductParams, RowSelection, bias_arg, word};
use gristmill_gpu::shared_struct;
use gristmill_gpu::storage::GpuAct;
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;

use gristmill_gpu::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{Fused, NormMatmul, Operation, RmsNorm};

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

shared_struct! {
    #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(super) struct NormMatmulParams in "norm_matmul.h" {
        product: ProductParams,
        x_stride: u64,
        normed_stride: u64,
        eps: f32,
        aligned: u32,
        parts: u32,
        padding: u32,
    }
}

/// [`NormMatmul`] in one launch for each run of the weight's parts, for few rows.
pub(super) fn norm_matmul(device: &Device, call: &mut NormMatmul) -> Result<Fused> {
    const OP: &str = NormMatmul::NAME;
    let NormMatmul { norm: RmsNorm { x, weight, eps, out }, act, other, weight: w, bias, y } = call;
    let (rows, cols) = (x.rows(), x.cols());
    if !(rows == 1 || (2..=MOST_ROWS).contains(&rows) && w.rows() <= SMALL) {
        return Ok(Fused::No);
    }
    fn exact(act: &Act) -> Result<Arg<'_>> {
        Ok(act.storage::<GpuAct>(OP)?.exact(Access::Write))
    }
    let copy = Arg::write(out);
    let (copies, all) = match other {
        Some(other) => ([copy, exact(act)?, exact(other)?], NORMED | ACT | OTHER),
        None => ([copy, exact(act)?, Arg::Null], NORMED | ACT),
    };
    let mut first = 0;
    for run in runs(layout::parts(OP, w)?) {
        let outputs: usize = run.iter().map(|part| part.rows).sum();
        let y = y.reborrow().columns(first..first + outputs)?;
        let bias = bias.map(|values| Bias { values, first, matrix: w.rows() });
        let (team_rows, entry) = SORTS[usize::from(w.rows() > SMALL)];
        let log2 = team_log2(run[0].spans);
        let (which, stride) = (RowSelection::All, y.layout().stride());
        let params = NormMatmulParams {
            product: ProductParams::new(OP, &run[0], act, which, bias, log2, ProductEpilogue::Store, stride, rows)?
                .joined(OP, run)?,
            x_stride: x.layout().stride() as u64,
            normed_stride: out.layout().stride() as u64,
            eps: *eps,
            aligned: aligned(cols, [RowAlignment::of(x), RowAlignment::of_mut(out)]),
            // The first launch writes the copies.
            parts: if first == 0 { all } else { 0 },
            padding: 0,
        };
        let [part, second, third] = part_args(run);
        let [copy, exact, other] = if first == 0 { copies } else { [Arg::Null; 3] };
        let (x, norm) = (Arg::read(x), Arg::buffer(weight, Access::Read));
        let args =
            [part, second, third, x, norm, bias_arg(bias), Arg::write(&y), copy, exact, other, Arg::params(&params)];
        let defines = [("FORMAT", run[0].format.name())];
        let blocks = outputs.div_ceil(team_rows).div_ceil(BLOCK >> log2);
        device.launch(&Launch {
            kernel: Kernel { file: gemv::FILE, entry, defines: &defines },
            grid: [word(OP, "blocks of outputs", blocks)?, rows as u32, 1],
            block: BLOCK as u32,
            shared: 0,
            overlap: true,
            args: &args,
        })?;
        first += outputs;
    }
    Ok(Fused::Yes)
}

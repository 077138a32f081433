//! A norm and the product that reads it, fused into one launch for steps of few tokens: the host side of
//! `kernels/norm_matmul.h`.

use super::Metal;
use super::gemv::{self, BLOCK, threads_log2};
use super::matmul::{JOINED_PARTS, part_args};
use gristmill_gpu::common::{RowAlignment, aligned};
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::matmul::each_run;
use gristmill_gpu::product::{Product, ProductParams, RowSelection};
use gristmill_gpu::storage::GpuAct;
use gristmill_gpu::{Access, Arg, Device, Kernel, Launch, Vendor, shared_struct};
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Fused, NormMatmul, Operation, RmsNorm};

/// A weight with more rows than this is large: reading it dominates, and one row of X at a time would read it
/// repeatedly.
const SMALL: usize = 1024;
/// Maximum rows of X for a small weight.
const MOST_ROWS: usize = 8;
/// Weight rows per lane group, and the kernel: for small weights, which need many blocks, and for large weights.
const SORTS: [(usize, &str); 2] = [(1, "norm_matmul_small"), (4, "norm_matmul")];
/// What a launch writes in addition to Y: `NormPart` in the source.
const NORMED: u32 = 1;
const ACT: u32 = 2;
const OTHER: u32 = 4;

shared_struct! {
    pub(super) struct NormMatmulParams {
        product: ProductParams,
        // Elements from row to row.
        x_stride: u64,
        normed_stride: u64,
        eps: f32,
        // Rows of X, of the norm's output and of activations allow 16-byte accesses.
        aligned: u32,
        // Which of `normed` and the activations this launch writes, of NormPart.
        parts: u32,
        padding: u32,
    }
}

/// [`NormMatmul`] for few rows, with one launch per run of the weight's parts.
pub(super) fn norm_matmul(metal: &Metal, call: &mut NormMatmul) -> Result<Fused> {
    const OP: &str = NormMatmul::NAME;
    let NormMatmul { norm, act, other, weight: w, bias, y } = call;
    let device = &metal.device;
    let rows = norm.x.rows();
    // The kernel divides sums, not their terms, so its bits differ from those of the kernel for many rows.
    if metal.deterministic() || !(rows == 1 || (2..=MOST_ROWS).contains(&rows) && w.rows() <= SMALL) {
        return Ok(Fused::No);
    }
    fn exact(act: &Act) -> Result<Arg<'_>> {
        Ok(act.storage::<GpuAct>(OP)?.exact(Access::Write))
    }
    let copies = [Arg::write(&norm.out), exact(act)?, other.as_deref().map_or(Ok(Arg::Null), exact)?];
    let parts = NORMED | ACT | if other.is_some() { OTHER } else { 0 };
    let sort = SORTS[usize::from(w.rows() > SMALL)];
    // The first launch writes the copies.
    let launch = |product: &Product| match product.first {
        0 => launch(device, norm, product, sort, copies, parts),
        _ => launch(device, norm, product, sort, [Arg::Null; 3], 0),
    };
    each_run(OP, w, JOINED_PARTS, act, RowSelection::All, *bias, ProductEpilogue::Store, y, launch)?;
    Ok(Fused::Yes)
}

/// Launches the product of one run, and writes `parts` of the norm's output to `copies`.
fn launch(
    device: &Device,
    norm: &RmsNorm,
    product: &Product,
    (group_rows, entry): (usize, &'static str),
    [copy, exact, other]: [Arg; 3],
    parts: u32,
) -> Result<()> {
    let (RmsNorm { x, weight, eps, out }, threads_log2) = (norm, threads_log2(product.weight().spans));
    let params = NormMatmulParams {
        product: ProductParams::new(product, threads_log2)?,
        x_stride: x.layout().stride() as u64,
        normed_stride: out.layout().stride() as u64,
        eps: *eps,
        aligned: aligned(x.cols(), [RowAlignment::of(x), RowAlignment::of_mut(out)]),
        parts,
        padding: 0,
    };
    let [part, second, third] = part_args(product);
    let [bias, _] = product.bias_args();
    let x = Arg::read(x);
    let norm = Arg::buffer(weight, Access::Read);
    let y = product.y_arg();
    let args = [part, second, third, x, norm, bias, y, copy, exact, other, Arg::params(&params)];
    let kernel = Kernel { file: gemv::FILE, entry, defines: &[("FORMAT", product.format().name())] };
    let grid = [product.output_blocks(group_rows * (BLOCK >> threads_log2))?, product.y.rows() as u32, 1];
    device.launch(&Launch::new(kernel, grid, BLOCK as u32, &args))
}

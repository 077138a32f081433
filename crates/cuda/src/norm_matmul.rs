//! A norm and the product that reads it in one launch, for steps of few tokens: the host side of
//! `kernels/norm_matmul.cu`.

use super::Cuda;
use super::family::Family;
use super::plan::{inputs, int8_define, reads_int8, threads_log2};
use gristmill_gpu::Unit;
use gristmill_gpu::common::norm_act::NormActs;
use gristmill_gpu::common::{RowAlignment, aligned};
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::layout::{PlaneRows, parts};
use gristmill_gpu::matmul::each_run;
use gristmill_gpu::product::{Product, RowSelection, word};
use gristmill_gpu::{Access, Arg, Kernel, Launch, shared_struct};
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Fused, NormMatmul, Operation, RmsNorm};

const FILE: &str = "norm_matmul.cu";
/// Threads of a block.
const BLOCK: usize = 256;
/// A weight of more rows than this is large: bytes cost time, and one row of X at a time would read them again.
const SMALL: usize = 1024;
/// Rows of X that a small weight is read for.
const MOST_ROWS: usize = 8;
/// Weight rows of a thread group, for small weights, which want many blocks, and for large ones.
const GROUP_ROWS: [(usize, &str); 2] = [(1, "1"), (4, "4")];
/// Bytes of shared memory that every device has for a block, less what the kernel has besides.
const SHARED: usize = 44 << 10;

shared_struct! {
    pub(super) struct NormMatmulParams {
        // Elements from a row to the next, and bytes of a weight row.
        x_stride: u64,
        normed_stride: u64,
        y_stride: u64,
        row_bytes: u64,
        // Outputs, blocks of the format in a row, and columns of X.
        outputs: u32,
        blocks: u32,
        cols: u32,
        // Threads of a group, as a power of two.
        threads_log2: u32,
        // Rows can be read by four elements.
        aligned: u32,
        eps: f32,
    }
}

pub(super) fn units() -> impl Iterator<Item = Unit> {
    inputs().flat_map(|(format, int8)| GROUP_ROWS.map(|(_, rows)| Unit::new(FILE, &defines(format, int8, rows))))
}

fn defines(format: Format, int8: bool, group_rows: &'static str) -> [(&'static str, &'static str); 3] {
    [("FORMAT", format.name()), ("INT8", int8_define(int8)), ("GROUP_ROWS", group_rows)]
}

/// Bytes of shared memory for the prepared row.
fn shared_bytes(cols: usize, int8: bool) -> usize {
    if int8 { cols.div_ceil(32) * 80 } else { cols.next_multiple_of(4) * size_of::<f32>() }
}

/// Whether the kernel is for this product of this number of rows.
fn serves(w: &[PlaneRows], rows: usize, act: &Act) -> bool {
    let few = |part: &PlaneRows| rows == 1 || (rows <= MOST_ROWS && part.rows <= SMALL);
    let fits = |part: &PlaneRows| shared_bytes(part.cols, reads_int8(part.format, act.precision())) <= SHARED;
    rows > 0 && w.iter().all(|part| few(part) && fits(part) && part.cols > 0)
}

/// [`NormMatmul`] in one launch for each part of the weight, for few rows.
pub(super) fn norm_matmul(cuda: &Cuda, call: &mut NormMatmul) -> Result<Fused> {
    const OP: &str = NormMatmul::NAME;
    let NormMatmul { norm, act, other, weight: w, bias, y } = call;
    let Some(acts) = NormActs::new(OP, [Some(act), other.as_deref()])? else { return Ok(Fused::No) };
    if !cuda.card.may(Family::Gemv) || !serves(parts(OP, w)?, norm.x.rows(), act) {
        return Ok(Fused::No);
    }
    // The first part's first block writes the copies.
    let launch = |product: &Product| launch(cuda, norm, product, Some(&acts).filter(|_| product.first == 0));
    each_run(OP, w, 1, act, RowSelection::All, *bias, ProductEpilogue::Store, y, launch)?;
    Ok(Fused::Yes)
}

/// Launches the product of one part, which also writes the norm's output, if these are given.
fn launch(cuda: &Cuda, norm: &RmsNorm, product: &Product, copies: Option<&NormActs>) -> Result<()> {
    let RmsNorm { x, weight, eps, out } = norm;
    let op = product.op;
    let part = product.weight();
    let cols = x.cols();
    let int8 = reads_int8(part.format, product.x.precision());
    let (group_rows, rows_define) = GROUP_ROWS[usize::from(part.rows > SMALL)];
    let threads_log2 = threads_log2(&cuda.card, part.spans, part.rows.div_ceil(group_rows), BLOCK);
    let params = NormMatmulParams {
        x_stride: x.layout().stride() as u64,
        normed_stride: out.layout().stride() as u64,
        y_stride: product.y.layout().stride() as u64,
        row_bytes: part.row_bytes as u64,
        outputs: word(op, "outputs", part.rows)?,
        blocks: word(op, "blocks in a row", part.blocks())?,
        cols: word(op, "columns", cols)?,
        threads_log2,
        aligned: aligned(cols, [RowAlignment::of(x), RowAlignment::of_mut(out)]),
        eps: *eps,
    };
    let [exact, of_int8, bf16, other] = copies.map_or([Arg::Null; 4], NormActs::args);
    let copy = if copies.is_some() { Arg::write(out) } else { Arg::Null };
    let x = Arg::read(x);
    let norm = Arg::buffer(weight, Access::Read);
    let y = product.y_arg();
    let [bias, _] = product.bias_args();
    let params = Arg::params(&params);
    let args = [part.arg(), x, norm, bias, y, copy, exact, of_int8, bf16, other, params];
    let kernel = Kernel { file: FILE, entry: "norm_matmul", defines: &defines(part.format, int8, rows_define) };
    let grid = [product.output_blocks(group_rows * (BLOCK >> threads_log2))?, product.y.rows() as u32, 1];
    let launch = Launch::new(kernel, grid, BLOCK as u32, &args);
    cuda.device.launch(&Launch { shared: shared_bytes(cols, int8) as u32, ..launch })
}

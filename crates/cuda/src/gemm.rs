//! Products of weights with many rows of activations, on tensor cores: the host side of `kernels/gemm.cu` and
//! `kernels/gemm_wgmma.cu`.

use super::Cuda;
use super::family::Family;
use super::gather_rows::{self, activation_bytes};
use super::gemm_sum;
use super::plan::{GemmPlan, Shape, share_bytes};
use gristmill_gpu::common::activations::prepare_activations;
use gristmill_gpu::epilogue::{EpilogueParams, ProductEpilogue};
use gristmill_gpu::product::{PairOrder, Product, RowSelection, word};
use gristmill_gpu::{Access, Arg, Kernel, Launch, Scratch, TensorMap, shared_struct};
use gristmill_kernels::act::ACT_BLOCK;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::elements;

/// Neighbouring rows of X that one copy brings to shared memory.
const X_BOX: u32 = 8;

shared_struct! {
    pub(super) struct GemmParams {
        // Bytes of a weight row and of an expert's matrix.
        row_bytes: u64,
        matrix_bytes: u64,
        // Elements from a row of Y to the next, from a row id to the next, of the bias from an expert to the next.
        y_stride: u64,
        ids_stride: u64,
        bias_stride: u64,
        // Outputs, and blocks of the format in a row.
        outputs: u32,
        blocks: u32,
        // Rows of X, 32 columns of which are 64 bytes, and of Y.
        x_rows: u32,
        x_blocks: u32,
        y_rows: u32,
        // Pairs of experts that share a row of X.
        pairs_per_row: u32,
        epilogue: EpilogueParams,
        // Neighbouring rows of X that one copy brings (`gemm_wgmma.cu`): 1 where a tile's rows lie apart.
        x_box: u32,
        // Whether rows of X and of Y are in the order of `pairs`.
        x_by_expert: u32,
        y_by_expert: u32,
    }
}

/// Activations in bfloat16, `stride` bytes from a row to the next, as a matrix that is read in tiles of this number of rows.
fn tiles_of(x: Arg, [cols, rows]: [usize; 2], stride: usize, tile_rows: u32) -> Arg {
    let Arg::Buffer { region, offset, .. } = x else { return Arg::Null };
    let columns = cols.next_multiple_of(ACT_BLOCK);
    Arg::Tiles(TensorMap { region, offset, size: [columns, rows], stride, tile_rows })
}

/// Launches a product, and what prepares its results as activations where the kernel does not.
pub(super) fn multiply(cuda: &Cuda, product: &Product, shape: &Shape, plan: &GemmPlan) -> Result<()> {
    // The kernel uses the highest bit of a row of Y as a mark.
    if product.y.rows() > i32::MAX as usize {
        let op = product.op;
        let rule = "must be below 2^31 on a GPU";
        return Err(Error::Range { op, what: "rows of the output", found: product.y.rows().to_string(), rule });
    }
    let shares =
        if plan.shares == 1 { None } else { share_bytes(product.y.rows(), product.weight().rows, plan.shares) };
    let gathered = match product.spare {
        None if plan.gathers => elements("rows", &[product.y.rows(), activation_bytes(product.x.cols())])?,
        _ => 0,
    };
    let workspace = match [shares.unwrap_or(0), gathered] {
        [0, 0] => None,
        bytes => Some(cuda.device.scratch(bytes)?),
    };
    launch(cuda, product, shape, plan, workspace.as_ref())?;
    if let (Some(workspace), 2..) = (&workspace, plan.shares) {
        gemm_sum::add(cuda, product, plan.shares, workspace)?;
    }
    let act = product.act.filter(|_| !product.rounded);
    act.map_or(Ok(()), |act| prepare_activations(&cuda.device, product.y.as_view(), act))
}

/// Launches a product to Y, or its shares to a workspace, of which the second part is for rows of X.
fn launch(
    cuda: &Cuda,
    product: &Product,
    shape: &Shape,
    plan: &GemmPlan,
    workspace: Option<&Scratch<2>>,
) -> Result<()> {
    let Product { op, x, rows, biases: [bias, _], epilogue, y, rounded, .. } = *product;
    let (w, (ids_stride, pairs_per_row)) = (product.weight(), rows.strides());
    let order = rows.order();
    let x_by_expert = plan.gathers || order == PairOrder::XByExpert;
    let x_box = if matches!(rows, RowSelection::All) || x_by_expert { X_BOX } else { 1 };
    // Numbers of 16 bits are in the place of activations, or of the first half of a row of floats.
    let (y_stride, y_arg) = match product.act.filter(|_| rounded) {
        Some(act) => (w.rows, act.storage.bf16(Access::Write)),
        None => (y.layout().stride() * if rounded { 2 } else { 1 }, product.y_arg()),
    };
    let whole = (y_stride, epilogue, y_arg, product.bias_args());
    let (y_stride, epilogue, y_arg, [bias_arg, up_bias]) = workspace
        .filter(|_| plan.shares > 1)
        .map_or(whole, |workspace| (w.rows, ProductEpilogue::Store, workspace.arg(0, Access::Write), [Arg::Null; 2]));
    let params = GemmParams {
        row_bytes: w.row_bytes as u64,
        matrix_bytes: w.matrix_bytes() as u64,
        y_stride: y_stride as u64,
        ids_stride: ids_stride as u64,
        bias_stride: bias.map_or(0, |bias| bias.matrix) as u64,
        outputs: word(op, "outputs", w.rows)?,
        blocks: word(op, "blocks in a row", w.blocks())?,
        x_rows: word(op, "rows of X", x.rows())?,
        x_blocks: word(op, "columns", x.cols().div_ceil(32))?,
        y_rows: word(op, "rows of Y", y.rows())?,
        pairs_per_row: word(op, "pairs of a row", pairs_per_row)?,
        epilogue: epilogue.into(),
        x_box,
        x_by_expert: x_by_expert.into(),
        y_by_expert: (order == PairOrder::YByExpert).into(),
    };
    let unit = plan.unit(w.format);
    let defines: Vec<_> = unit.defines.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let kernel = Kernel { file: unit.file, entry: unit.file.trim_end_matches(".cu"), defines: &defines };
    let [ids, pairs, tiles, tile_count] = rows.args();
    let (weight, up) = (w.arg(), product.up_arg());
    let columns = x.cols();
    let stride = activation_bytes(x.cols());
    let x_arg = match (product.spare, workspace) {
        (Some(memory), _) if plan.gathers => {
            gather_rows::gather(cuda, product, Arg::write(memory), gather_rows::stride(memory))?;
            tiles_of(Arg::write(memory), [columns, y.rows()], gather_rows::stride(memory), x_box)
        }
        (None, Some(workspace)) if plan.gathers => {
            gather_rows::gather(cuda, product, workspace.arg(1, Access::Write), stride)?;
            tiles_of(workspace.arg(1, Access::Read), [columns, y.rows()], stride, x_box)
        }
        _ if plan.cut.family == Family::Wgmma => tiles_of(product.bf16()?, [columns, x.rows()], stride, x_box),
        _ => product.bf16()?,
    };
    let flag = cuda.device.flag();
    let params = Arg::params(&params);
    let args = [weight, up, x_arg, ids, pairs, tiles, tile_count, bias_arg, up_bias, y_arg, flag, params];
    let grid = [word(op, "blocks", plan.grid(&cuda.card, shape)?)?, plan.shares as u32, 1];
    let launch = Launch::new(kernel, grid, plan.cut.threads(), &args);
    cuda.device.launch(&Launch { shared: plan.cut.shared_bytes(w.format) as u32, ..launch })
}

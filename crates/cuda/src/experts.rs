//! The experts of few tokens: the host side of `kernels/experts.cu`.

use super::Cuda;
use super::gemv::x_arg;
use super::plan::{GATE_OUTPUTS, inputs, int8_define, reads_int8};
use gristmill_gpu::Unit;
use gristmill_gpu::common::route::{Defines, RouteParams, all_lane_defines};
use gristmill_gpu::epilogue::EpilogueParams;
use gristmill_gpu::experts::FewTokens;
use gristmill_gpu::product::{Product, word};
use gristmill_gpu::{Arg, Kernel, Launch, shared_struct};
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;

const FILE: &str = "experts.cu";
/// Threads of a block for gate and up.
const BLOCK: u32 = 256;
/// Rows of `down` of a block, and its warps at most: as in the source.
const DOWN_ROWS: usize = 8;
const DOWN_WARPS: usize = 8;
shared_struct! {
    pub(super) struct ExpertsParams {
        route: RouteParams,
        // Where the weights' rows are, see `GatedShape`.
        row_bytes: u64,
        matrix_bytes: u64,
        bias_stride: u64,
        // Elements from a row of Y to the next.
        y_stride: u64,
        // Outputs, blocks of the format in a row, and columns of X.
        outputs: u32,
        blocks: u32,
        cols: u32,
        epilogue: EpilogueParams,
    }
}

pub(super) fn units() -> impl Iterator<Item = Unit> {
    inputs().flat_map(|(format, int8)| {
        all_lane_defines(EXPERTS_PER_LANE).map(move |lanes| Unit::new(FILE, &defines(format, int8, lanes)))
    })
}

/// See [`gristmill_gpu::Vendor::experts_per_lane`].
pub(super) const EXPERTS_PER_LANE: usize = 16;

fn defines(format: Format, int8: bool, lanes: Defines) -> Vec<(&'static str, &'static str)> {
    [&[("FORMAT", format.name()), ("INT8", int8_define(int8))][..], lanes].concat()
}

/// Launches one of the two products.
pub(super) fn multiply(cuda: &Cuda, few: &FewTokens, product: &Product) -> Result<()> {
    let op = product.op;
    let w = product.weight();
    let params = ExpertsParams {
        route: few.route,
        row_bytes: w.row_bytes as u64,
        matrix_bytes: w.matrix_bytes() as u64,
        bias_stride: w.rows as u64,
        y_stride: if product.act.is_some() { 0 } else { product.y.layout().stride() as u64 },
        outputs: word(op, "outputs", w.rows)?,
        blocks: word(op, "blocks in a row", w.blocks())?,
        cols: word(op, "columns", w.cols)?,
        epilogue: product.epilogue.into(),
    };
    let int8 = reads_int8(w.format, product.x.precision());
    let weight = w.arg();
    let x = x_arg(product, int8)?;
    let params = Arg::params(&params);
    let ([bias, up_bias], [y, exact, of_int8, bf16]) = (product.bias_args(), product.output_args());
    let (logits, [selection, scales, tokens], [ids, weights]) = (few.logits, few.optional, few.chosen);
    let (entry, outputs, block, args): (_, _, _, &[Arg]) = match product.up {
        Some(up) => (
            "experts_gate_up",
            GATE_OUTPUTS,
            BLOCK,
            &[
                weight,
                up.arg(),
                x,
                logits,
                selection,
                scales,
                bias,
                up_bias,
                tokens,
                ids,
                weights,
                exact,
                of_int8,
                bf16,
                params,
            ],
        ),
        None => {
            let block = 32 * few.top_k.min(DOWN_WARPS) as u32;
            ("experts_down", DOWN_ROWS, block, &[weight, x, logits, selection, scales, bias, tokens, y, params])
        }
    };
    let kernel = Kernel { file: FILE, entry, defines: &defines(w.format, int8, few.defines) };
    let grid = [product.output_blocks(outputs)?, product.y.rows() as u32, 1];
    cuda.device.launch(&Launch::new(kernel, grid, block, args))
}

//! Products of weights with a few rows of activations, on tensor cores: the host side of `kernels/gemm_int8.cu`.

use super::Cuda;
use super::gemv::reads_int8;
use super::units::Unit;
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::{Bias, Gated, ProductParams, RowSelection, bias_arg, lists, word};
use gristmill_gpu::storage::GpuAct;
use gristmill_gpu::{Access, Arg, Kernel, Launch};
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::Activation;
use gristmill_kernels::tensor::{Buffer, ViewMut};
use std::ops::RangeInclusive;

const FILE: &str = "gemm_int8.cu";
/// Rows of X that are multiplied at once: `TOKENS` in the text.
const AT_ONCE: usize = 8;
/// Outputs that are multiplied at once, and sums of these.
const OUTPUTS: usize = 16;
const SUMS_BYTES: usize = OUTPUTS * AT_ONCE * size_of::<f32>();
/// Columns that a warp takes at once, and warps of a block.
const COLUMNS: usize = 256;
const MOST_WARPS: usize = 4;
/// Bytes of `WarpScratch` in the kernel source: codes, scales, columns.
const WARP_SCRATCH: usize = OUTPUTS * COLUMNS + (COLUMNS / 16) * (OUTPUTS + 1 + AT_ONCE) * 2 * size_of::<f32>();
/// Blocks that a multiprocessor should have at least, so that its warps hide each other's waiting.
const BLOCKS_EACH: usize = 3;

/// Rows of X, in which these kernels are the fastest. On an H200, with Q4_K, GEMV, this and `gemm.cu` take 5,120 × 2,048 in
/// 6.0, 6.0 and 13 µs for two rows; 8.9, 6.4 and 13 for four; 22, 7.2 and 13 for eight; for 16 this 10.7 and `gemm.cu` 13,
/// for 32 both 14.
const ROWS: RangeInclusive<usize> = 3..=16;
/// The same of pairs for each of the experts, from and below. For 128 experts, gate and up of 768 × 2,048 take 42, 45 and 62
/// µs for half a pair each; 113, 89 and 123 for two; 199, 98 and 134 for four.
const PAIRS: [usize; 2] = [1, 6];

/// What may be compiled.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    let formats = Format::ALL.iter().filter(|format| !format.is_float());
    let kinds = formats.flat_map(|&format| [false, true].map(|both| defines(format, both)));
    kinds.map(|defines| Unit { file: FILE, defines: defines.map(|(name, value)| (name, value.to_owned())).into() })
}

/// `both`: for a gate and an up weight.
fn defines(format: Format, both: bool) -> [(&'static str, &'static str); 2] {
    [("FORMAT", format.name()), ("GATED", if both { "1" } else { "0" })]
}

/// Whether a product is one for these kernels.
pub(super) fn serves(cuda: &Cuda, w: &PlaneRows, x: &Act, which: RowSelection, y_rows: usize) -> bool {
    let enough = match which {
        RowSelection::Pairs { groups, .. } => {
            let [from, below] = PAIRS.map(|pairs| pairs * groups.experts());
            y_rows > 1 && (from..below).contains(&y_rows)
        }
        _ => ROWS.contains(&y_rows),
    };
    cuda.device.gpu().properties().architecture >= 80 && reads_int8(w, x) && enough
}

/// X · Wᵀ + bias, with an epilogue in Y.
pub(super) fn matmul(
    cuda: &Cuda,
    op: &'static str,
    w: &PlaneRows,
    x: &Act,
    which: RowSelection,
    bias: Option<Bias>,
    epilogue: ProductEpilogue,
    y: &ViewMut<f32>,
) -> Result<()> {
    let to = [epilogue.output(y), Arg::Null, Arg::Null, Arg::Null];
    launch(cuda, op, [w, w], x, which, [bias, None], false, epilogue, to, y.layout().stride(), y.rows())
}

/// activation(gate · x + bias, up · x + bias), for two weights of one shape and format, of so many rows.
pub(super) fn gate_up(
    cuda: &Cuda,
    op: &'static str,
    weights: [&PlaneRows; 2],
    x: &Act,
    which: RowSelection,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    rows: usize,
    to: Gated,
) -> Result<()> {
    let matrix = weights[0].rows;
    let bias = Bias::both(bias, matrix);
    let stride = to.h.map_or(0, |h| h.layout().stride());
    launch(cuda, op, weights, x, which, bias, true, ProductEpilogue::Gate(activation), to.args(), stride, rows)
}

/// `both`: products of the second weight are gated by those of the first.
fn launch(
    cuda: &Cuda,
    op: &'static str,
    [w, up]: [&PlaneRows; 2],
    x: &Act,
    which: RowSelection,
    bias: [Option<Bias>; 2],
    both: bool,
    epilogue: ProductEpilogue,
    to: [Arg; 4],
    y_stride: usize,
    y_rows: usize,
) -> Result<()> {
    if y_rows == 0 {
        return Ok(());
    }
    // The order of sums depends on the warps, and these on the weight alone.
    let warps = w.cols.div_ceil(COLUMNS).clamp(1, MOST_WARPS);
    let slabs = slabs(cuda, w, which, both, y_rows);
    let blocks = w.rows.div_ceil(OUTPUTS * slabs);
    let params = ProductParams::new(op, w, x, which, bias[0], slabs as u32, epilogue, y_stride, y_rows)?;
    let ids = if let RowSelection::Ids(ids) = &which { Arg::read(ids) } else { Arg::Null };
    let [pairs, tiles, tile_count] = lists(which);
    let [bias, up_bias] = bias.map(bias_arg);
    let x: &GpuAct = x.storage(op)?;
    let (x, up) = (x.int8(Access::Read), if both { up.arg() } else { Arg::Null });
    let [y, exact, int8, bf16] = to;
    let (params, defines) = (Arg::params(&params), defines(w.format, both));
    cuda.device.launch(&Launch {
        kernel: Kernel { file: FILE, entry: "gemm_int8", defines: &defines },
        grid: [word(op, "blocks of outputs", blocks)?, which.tasks(w.experts, y_rows, AT_ONCE), 1],
        block: 32 * warps as u32,
        shared: (warps * (WARP_SCRATCH + (1 + usize::from(both)) * slabs * SUMS_BYTES)) as u32,
        overlap: true,
        args: &[
            w.arg(),
            up,
            x,
            ids,
            pairs,
            tiles,
            tile_count,
            bias,
            up_bias,
            y,
            exact,
            int8,
            bf16,
            cuda.device.flag(),
            params,
        ],
    })
}

/// Times 16 outputs of a block: as many as there are sums for in shared memory, if that makes blocks enough to keep the
/// device busy. Of gate and up an even number, since 32 outputs are rounded together.
fn slabs(cuda: &Cuda, w: &PlaneRows, which: RowSelection, both: bool, y_rows: usize) -> usize {
    let busy = match which {
        // As many experts as have pairs, if the router is even.
        RowSelection::Pairs { .. } => w.experts.min(y_rows),
        _ => y_rows.div_ceil(AT_ONCE),
    };
    let wanted = BLOCKS_EACH * cuda.device.gpu().properties().multiprocessors.max(1) as usize;
    let enough = |slabs: &usize| w.rows.div_ceil(OUTPUTS * slabs).saturating_mul(busy) >= wanted;
    let (most, least) = if both { (4, 2) } else { (8, 1) };
    std::iter::successors(Some(most), |slabs| (slabs / 2 >= least).then_some(slabs / 2)).find(enough).unwrap_or(least)
}

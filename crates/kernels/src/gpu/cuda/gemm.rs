//! Products of weights with many rows of activations, on tensor cores: the host side of `kernels/gemm.cu`.

use super::product::{Bias, Which, bias_arg, lists, word};
use super::texts::Text;
use crate::act::{Act, Precision};
use crate::check::elements;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::gpu::finish::{Finish, FinishParams};
use crate::gpu::layout::Rows;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
use crate::group::max_tiles;
use crate::ops::Activation;
use crate::tensor::{Buffer, ViewMut};

const FILE: &str = "gemm.cu";
/// Rows of a full tile of [`crate::ops::Groups`].
const TILE: usize = super::moe::TILE_ROWS;
/// Warps of a block.
const WARPS: usize = 8;
/// Rows of X from which on these kernels beat those of `gemv.rs`. On an H200, with Q4_K, 5,120 × 2,048 takes 12.2 and 20.9
/// µs there for 4 and 8 rows, 14.7 and 14.4 here; 2,048 × 4,096 takes 11.2 and 18.3, and 12.4 and 12.3.
const FEWEST_ROWS: usize = 5;
/// Pairs for each expert from which on the same is true. For 128 experts, gate and up of 768 × 2,048, there and here: 99 and
/// 131 µs for two pairs each, 171 and 133 for four.
const FEWEST_PAIRS: usize = 3;

/// How the work is cut.
#[derive(Clone, Copy)]
struct Cut {
    /// Rows of X at once.
    tokens: usize,
    /// Times 16 rows of weights of a warp.
    fragments: usize,
    /// Parts of a block's warps, which take steps of columns in turns. Not for experts.
    split: usize,
    /// Blocks that fit a multiprocessor.
    blocks: usize,
    /// Rounds of columns of X that are in shared memory.
    stages: usize,
    /// How long a block takes, relative to the others' (measured on an H200).
    time: usize,
}

/// Narrow ones start and end sooner, most of all if their warps share the columns; large ones unpack each weight for more
/// rows of X, and read each row of X for more weights.
const CUTS: [Cut; 4] = [
    Cut { tokens: 32, fragments: 1, split: 1, blocks: 2, stages: 3, time: 50 },
    Cut { tokens: 32, fragments: 1, split: 4, blocks: 1, stages: 2, time: 20 },
    Cut { tokens: 64, fragments: 1, split: 1, blocks: 2, stages: 2, time: 70 },
    Cut { tokens: 64, fragments: 2, split: 1, blocks: 1, stages: 3, time: 120 },
];

/// Formats that the kernels multiply: quantised ones and bfloat16. F16 has more bits than bfloat16 would keep.
fn known(format: Format) -> bool {
    !format.is_float() || format.is_bf16()
}

/// What may be compiled.
pub(super) fn texts() -> impl Iterator<Item = Text> {
    let formats = Format::ALL.iter().copied().filter(|&format| known(format));
    let cuts = formats.flat_map(|format| CUTS.map(|cut| (format, cut)));
    let kinds = cuts.flat_map(|(format, cut)| [false, true].map(|both| cut.defines(format, both)));
    kinds.map(|defines| Text { file: FILE, defines: defines.into() })
}

/// Whether a product is one for these kernels.
pub(super) fn serves(device: &Device, w: &Rows, x: &Act, which: Which, y_rows: usize) -> bool {
    let properties = device.gpu().properties();
    let enough = match which {
        Which::Pairs { groups, .. } => y_rows >= FEWEST_ROWS && y_rows >= FEWEST_PAIRS * groups.counts.len(),
        _ => y_rows >= FEWEST_ROWS,
    };
    let there = properties.architecture >= 80 && properties.shared_bytes as usize >= CUTS[0].shared_bytes(w.format);
    there && known(w.format) && x.precision == Precision::Fast && enough
}

impl Cut {
    /// The fastest for so many rows of weights, if the router is even.
    fn new(device: &Device, format: Format, weight_rows: usize, which: Which, y_rows: usize) -> Self {
        let properties = device.gpu().properties();
        let tiles = |cut: &Cut| match which {
            // Each expert has a last tile, half of which is there on average.
            Which::Pairs { groups, .. } => {
                let experts = groups.counts.len();
                experts.max(experts / 2 + y_rows / cut.tokens)
            }
            _ => y_rows.div_ceil(cut.tokens),
        };
        let cost = |cut: &Cut| {
            let blocks = weight_rows.div_ceil(cut.weight_rows()) * tiles(cut);
            cut.time * blocks.div_ceil(properties.multiprocessors.max(1) as usize)
        };
        // Tiles of experts are short. With two blocks at a time, one computes while the other begins or ends: 10% faster.
        let fits = |cut: &Cut| {
            let fits = cut.shared_bytes(format) <= properties.shared_bytes as usize;
            fits && (cut.blocks > 1 || !matches!(which, Which::Pairs { .. }))
        };
        CUTS.into_iter().filter(fits).min_by_key(cost).unwrap_or(CUTS[0])
    }

    /// Rows of weights of a block.
    fn weight_rows(&self) -> usize {
        16 * WARPS * self.fragments / self.split
    }

    /// The text's definitions. `both`: for a gate and an up weight.
    fn defines(&self, format: Format, both: bool) -> [(&'static str, String); 9] {
        [
            ("FORMAT", format.name().to_owned()),
            ("GATED", usize::from(both).to_string()),
            ("TOKENS", self.tokens.to_string()),
            ("TILE", TILE.to_string()),
            ("WARPS", WARPS.to_string()),
            ("FRAGMENTS", self.fragments.to_string()),
            ("SPLIT", self.split.to_string()),
            ("BLOCKS", self.blocks.to_string()),
            ("STAGES", self.stages.to_string()),
        ]
    }

    fn shared_bytes(&self, format: Format) -> usize {
        // Columns of X in a step: `STEP` in the kernel's text.
        let step = if format.is_float() { 64 } else { 256 };
        self.stages * self.tokens * self.split * step * size_of::<u16>()
    }
}

/// Twin of `GemmParams` in the kernel's text.
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
struct GemmParams {
    row_bytes: u64,
    matrix_bytes: u64,
    y_stride: u64,
    ids_stride: u64,
    bias_stride: u64,
    outputs: u32,
    blocks: u32,
    x_rows: u32,
    x_blocks: u32,
    y_rows: u32,
    share: u32,
    finish: FinishParams,
    padding: u32,
}

/// X · Wᵀ + bias, which finishes in Y.
pub(super) fn matmul(
    device: &Device,
    op: &'static str,
    w: &Rows,
    x: &Act,
    which: Which,
    bias: Option<Bias>,
    finish: Finish,
    y: &ViewMut<f32>,
) -> Result<()> {
    launch(device, op, [w, w], x, which, [bias, None], false, finish, y)
}

/// H = activation(gate · x + bias, up · x + bias), for two weights of one shape and format.
pub(super) fn gate_up(
    device: &Device,
    op: &'static str,
    weights: [&Rows; 2],
    x: &Act,
    which: Which,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: &ViewMut<f32>,
) -> Result<()> {
    let matrix = weights[0].rows;
    let bias = bias.map_or([None; 2], |both| both.map(|values| Some(Bias { values, first: 0, matrix })));
    launch(device, op, weights, x, which, bias, true, Finish::Gate(activation), h)
}

/// `both`: products of the second weight are gated by those of the first.
fn launch(
    device: &Device,
    op: &'static str,
    [w, up]: [&Rows; 2],
    x: &Act,
    which: Which,
    bias: [Option<Bias>; 2],
    both: bool,
    finish: Finish,
    y: &ViewMut<f32>,
) -> Result<()> {
    if y.rows() == 0 {
        return Ok(());
    }
    let weight_rows = if both { 2 * w.rows } else { w.rows };
    let cut = Cut::new(device, w.format, weight_rows, which, y.rows());
    let (ids_stride, share, tiles) = match which {
        Which::All => (0, 1, y.rows().div_ceil(cut.tokens)),
        Which::Ids(ids) => (ids.shape().stride(), 1, y.rows().div_ceil(cut.tokens)),
        // One more is for pairs without an expert.
        Which::Pairs { groups, share } => (0, share, max_tiles(w.experts, y.rows(), groups.tile_rows) + 1),
    };
    // The kernel uses the highest bit of a row of Y as a mark.
    if y.rows() > i32::MAX as usize {
        let rule = "must be below 2^31 on a GPU";
        return Err(Error::Range { op, what: "rows of the output", found: y.rows().to_string(), rule });
    }
    let params = GemmParams {
        row_bytes: w.row_bytes as u64,
        matrix_bytes: w.matrix_bytes() as u64,
        y_stride: y.shape().stride() as u64,
        ids_stride: ids_stride as u64,
        bias_stride: bias[0].map_or(0, |bias| bias.matrix) as u64,
        outputs: word(op, "outputs", w.rows)?,
        blocks: word(op, "blocks in a row", w.blocks())?,
        x_rows: word(op, "rows of X", x.rows)?,
        x_blocks: word(op, "columns", x.cols.div_ceil(32))?,
        y_rows: word(op, "rows of Y", y.rows())?,
        share: word(op, "pairs of a row", share)?,
        finish: finish.into(),
        padding: 0,
    };
    let grid = elements("blocks", &[weight_rows.div_ceil(cut.weight_rows()), tiles])?;
    let defines = cut.defines(w.format, both);
    let defines = defines.each_ref().map(|(name, value)| (*name, value.as_str()));
    let ids = if let Which::Ids(ids) = &which { Arg::read(ids) } else { Arg::Null };
    let [pairs, tiles, tile_count] = lists(which);
    let [bias, up_bias] = bias.map(bias_arg);
    let (x, up) = (Arg::buffer(&x.bf16, Access::Read), if both { up.arg() } else { Arg::Null });
    let y = if both { Arg::write(y) } else { finish.output(y) };
    let params = Arg::params(&params);
    device.launch(&Launch {
        kernel: Kernel { file: FILE, entry: "gemm", defines: &defines },
        grid: [word(op, "blocks", grid)?, 1, 1],
        block: 32 * WARPS as u32,
        shared: cut.shared_bytes(w.format) as u32,
        overlap: true,
        args: &[w.arg(), up, x, ids, pairs, tiles, tile_count, bias, up_bias, y, device.flag(), params],
    })
}

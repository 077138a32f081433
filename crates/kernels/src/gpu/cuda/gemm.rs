//! Products of weights with many rows of activations, on tensor cores: the host side of `kernels/gemm.cu`.

use super::product::{Bias, Which, bias_arg, lists, word};
use super::texts::Text;
use crate::act::{Act, Precision};
use crate::check::elements;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::gpu::activation::ActivationParams;
use crate::gpu::layout::Rows;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
use crate::group::max_tiles;
use crate::ops::Activation;
use crate::tensor::{Buffer, ViewMut};

const FILE: &str = "gemm.cu";
/// Rows of X from which on these kernels are faster than those of `gemv.rs`.
const FEWEST: usize = 9;
/// The same for experts: rows of each, if the router is even. On an H200, for 128 experts of 768 × 2,048 in Q4_K and two
/// rows of each, `gemv.cu` takes 242 µs for gate and up; here it was 193 µs for 32 rows of each.
const FEWEST_OF_EXPERT: usize = 2;
/// Rows of X in a tile: `TOKENS` in the kernel's text, and at least the rows of a tile of [`crate::ops::Groups`].
const TOKENS: usize = super::moe::TILE_ROWS;
/// Warps of a block.
const WARPS: usize = 8;

/// How the work is cut.
struct Cut {
    /// Times 16 rows of weights of a warp.
    fragments: usize,
    /// Blocks of a multiprocessor.
    blocks: usize,
    /// Steps of columns of X that are in shared memory.
    stages: usize,
}

/// Each row of X that is read, and each tile of it that weights are unpacked for, serves as many weights as registers
/// hold.
const LARGE: Cut = Cut { fragments: 2, blocks: 1, stages: 3 };
/// Twice as many blocks, where there are too few for all multiprocessors: up to a quarter faster then.
const SMALL: Cut = Cut { fragments: 1, blocks: 2, stages: 2 };

/// Formats that the kernels multiply: quantised ones and bfloat16. F16 has more bits than bfloat16 would keep.
fn known(format: Format) -> bool {
    !format.is_float() || format.is_bf16()
}

/// What may be compiled.
pub(super) fn texts() -> impl Iterator<Item = Text> {
    let formats = Format::ALL.iter().copied().filter(|&format| known(format));
    let cuts = formats.flat_map(|format| [LARGE, SMALL].map(|cut| (format, cut)));
    let kinds = cuts.flat_map(|(format, cut)| [false, true].map(|both| cut.defines(format, both)));
    kinds.map(|defines| Text { file: FILE, defines: defines.into() })
}

/// Whether a product is one for these kernels.
pub(super) fn serves(device: &Device, format: Format, x: &Act, which: Which, y_rows: usize) -> bool {
    let enough = match which {
        Which::Pairs { groups, .. } => y_rows >= FEWEST_OF_EXPERT * groups.counts.len(),
        _ => y_rows >= FEWEST,
    };
    let properties = device.gpu().properties();
    let there = properties.architecture >= 80 && properties.shared_bytes as usize >= LARGE.shared_bytes(format);
    there && known(format) && x.precision == Precision::Fast && enough
}

impl Cut {
    /// For so many outputs of so many matrices, half of them gates, and so many tiles.
    fn new(device: &Device, outputs: usize, tiles: usize) -> Self {
        let blocks = outputs.div_ceil(16 * WARPS * LARGE.fragments) * tiles;
        if blocks > 2 * device.gpu().properties().multiprocessors as usize { LARGE } else { SMALL }
    }

    /// The text's definitions. `both`: for a gate and an up weight.
    fn defines(&self, format: Format, both: bool) -> [(&'static str, String); 7] {
        [
            ("FORMAT", format.name().to_owned()),
            ("GATED", usize::from(both).to_string()),
            ("TOKENS", TOKENS.to_string()),
            ("WARPS", WARPS.to_string()),
            ("FRAGMENTS", self.fragments.to_string()),
            ("BLOCKS", self.blocks.to_string()),
            ("STAGES", self.stages.to_string()),
        ]
    }

    fn shared_bytes(&self, format: Format) -> usize {
        // Columns of X in a step: `STEP` in the kernel's text.
        let step = if format.is_float() { 64 } else { 256 };
        self.stages * TOKENS * step * size_of::<u16>()
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
    finish: u32,
    activation: ActivationParams,
}

/// Y = X · Wᵀ + bias; or, for a Y that holds gates, activation(Y, X · Wᵀ + bias).
pub(super) fn matmul(
    device: &Device,
    op: &'static str,
    w: &Rows,
    x: &Act,
    which: Which,
    bias: Option<Bias>,
    gated: Option<Activation>,
    y: &ViewMut<f32>,
) -> Result<()> {
    let finish = gated.map_or(Finish::Store, Finish::Gate);
    launch(device, op, [w, w], x, which, [bias, None], finish, y)
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
    launch(device, op, weights, x, which, bias, Finish::Both(activation), h)
}

/// What becomes of products.
#[derive(Clone, Copy)]
enum Finish {
    Store,
    /// They are gated by what Y holds.
    Gate(Activation),
    /// Those of the second weight are gated by those of the first.
    Both(Activation),
}

fn launch(
    device: &Device,
    op: &'static str,
    [w, up]: [&Rows; 2],
    x: &Act,
    which: Which,
    bias: [Option<Bias>; 2],
    finish: Finish,
    y: &ViewMut<f32>,
) -> Result<()> {
    if y.rows() == 0 {
        return Ok(());
    }
    let (both, activation) = match finish {
        Finish::Store => (false, Activation::SwiGlu),
        Finish::Gate(activation) => (false, activation),
        Finish::Both(activation) => (true, activation),
    };
    let (ids_stride, share, tiles) = match which {
        Which::All => (0, 1, y.rows().div_ceil(TOKENS)),
        Which::Ids(ids) => (ids.shape().stride(), 1, y.rows().div_ceil(TOKENS)),
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
        finish: u32::from(matches!(finish, Finish::Gate(_))),
        activation: activation.into(),
    };
    let weight_rows = if both { 2 * w.rows } else { w.rows };
    let cut = Cut::new(device, weight_rows, tiles);
    let grid = elements("blocks", &[weight_rows.div_ceil(16 * WARPS * cut.fragments), tiles])?;
    let defines = cut.defines(w.format, both);
    let defines = defines.each_ref().map(|(name, value)| (*name, value.as_str()));
    let ids = if let Which::Ids(ids) = &which { Arg::read(ids) } else { Arg::Null };
    let [pairs, tiles, tile_count] = lists(which);
    let [bias, up_bias] = bias.map(bias_arg);
    let (x, up) = (Arg::buffer(&x.bf16, Access::Read), if both { up.arg() } else { Arg::Null });
    let y = if matches!(finish, Finish::Gate(_)) { Arg::change(y) } else { Arg::write(y) };
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

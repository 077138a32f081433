//! Products of weights with many rows of activations, on tensor cores: the host side of `kernels/gemm.cu` and
//! `kernels/gemm_wgmma.cu`.

use super::family::Family;
use super::units::Unit;
use gristmill_gpu::epilogue::{EpilogueParams, ProductEpilogue};
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::{Bias, RowSelection, bias_arg, lists, word};
use gristmill_gpu::shared_struct;
use gristmill_gpu::storage::GpuAct;
use gristmill_kernels::act::{Act, Precision};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::elements;

use super::Cuda;
use gristmill_gpu::{Access, Arg, Kernel, Launch};
use gristmill_kernels::groups::max_tiles;
use gristmill_kernels::ops::Activation;
use gristmill_kernels::tensor::{Buffer, ViewMut};

/// Rows of a full tile of [`gristmill_kernels::ops::Groups`] for `gemm.cu`.
const TILE: usize = super::moe::TILE_ROWS;
/// Rows of X from which on these kernels beat those of `gemv.rs`. On an H200, with Q4_K, 5,120 × 2,048 takes 12.2 and 20.9
/// µs there for 4 and 8 rows, 14.7 and 14.4 here; 2,048 × 4,096 takes 11.2 and 18.3, and 12.4 and 12.3.
const FEWEST_ROWS: usize = 5;
/// Pairs for each expert from which on the same is true. For 128 experts, gate and up of 768 × 2,048, there and here: 99 and
/// 131 µs for two pairs each, 171 and 133 for four.
const FEWEST_PAIRS: usize = 3;

/// How the work is cut.
#[derive(Clone, Copy)]
struct Cut {
    /// RowSelection of the two units.
    family: Family,
    /// Rows of X at once.
    tokens: usize,
    /// Warps of a block that multiply, and that copy.
    warps: usize,
    copiers: usize,
    /// Times 16 rows of weights of a warp.
    fragments: usize,
    /// Parts of a block's warps, which take steps of columns in turns. Not for experts, and not by `wgmma`.
    split: usize,
    /// Blocks that fit a multiprocessor.
    blocks: usize,
    /// Rounds of columns of X that are in shared memory.
    stages: usize,
    /// How long a block takes, relative to the others' (measured on an H200).
    time: usize,
}

impl Cut {
    const fn mma(tokens: usize, fragments: usize, split: usize, blocks: usize, stages: usize, time: usize) -> Self {
        Self { family: Family::Mma, tokens, warps: 8, copiers: 0, fragments, split, blocks, stages, time }
    }

    const fn wgmma(tokens: usize, warps: usize, fragments: usize, blocks: usize, stages: usize, time: usize) -> Self {
        Self { family: Family::Wgmma, tokens, warps, copiers: 4, fragments, split: 1, blocks, stages, time }
    }
}

/// Narrow ones start and end sooner, most of all if their warps share the columns; large ones unpack each weight for more
/// rows of X, and read each row of X for more weights.
const CUTS: [Cut; 6] = [
    Cut::mma(32, 1, 1, 2, 3, 50),
    Cut::mma(32, 1, 4, 1, 2, 20),
    Cut::mma(64, 1, 1, 2, 2, 70),
    Cut::mma(64, 2, 1, 1, 3, 120),
    Cut::wgmma(128, 12, 1, 1, 6, 124),
    Cut::wgmma(128, 8, 2, 1, 6, 165),
];

/// Formats that the kernels multiply: quantised ones and bfloat16. F16 has more bits than bfloat16 would keep.
fn known(format: Format) -> bool {
    !format.is_float() || format.is_bf16()
}

/// What may be compiled.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    let formats = Format::ALL.iter().copied().filter(|&format| known(format));
    let cuts = formats.flat_map(|format| CUTS.map(|cut| (format, cut)));
    let kinds = cuts.flat_map(|(format, cut)| [false, true].map(|both| (cut.file(), cut.defines(format, both))));
    kinds.map(|(file, defines)| Unit { file, defines })
}

/// Whether a product is one for these kernels.
pub(super) fn serves(cuda: &Cuda, w: &PlaneRows, x: &Act, which: RowSelection, y_rows: usize) -> bool {
    let enough = match which {
        RowSelection::Pairs { groups, .. } => y_rows >= FEWEST_ROWS && y_rows >= FEWEST_PAIRS * groups.experts(),
        _ => y_rows >= FEWEST_ROWS,
    };
    enough && cannot(cuda, Family::Mma, w.format, x.precision()).is_none()
}

/// Why a device's kernels of this family do not multiply such a weight with such activations, if so.
pub(super) fn cannot(cuda: &Cuda, family: Family, format: Format, precision: Precision) -> Option<&'static str> {
    if !known(format) {
        Some("tensor cores take quantised weights and BF16")
    } else if precision != Precision::Fast {
        Some("tensor cores round activations, which must be of precision `Fast`")
    } else if !CUTS.iter().any(|cut| cut.family == family && cut.fits(cuda, format)) {
        Some("the device has no such instructions, or too little shared memory")
    } else {
        None
    }
}

impl Cut {
    /// The fastest for so many rows of weights, if the router is even.
    fn new(cuda: &Cuda, format: Format, weight_rows: usize, which: RowSelection, y_rows: usize) -> Self {
        let properties = cuda.device.gpu().properties();
        let tiles = |cut: &Cut| match which {
            // Each expert has a last tile, half of which is there on average.
            RowSelection::Pairs { groups, .. } => {
                let experts = groups.experts();
                experts.max(experts / 2 + y_rows / cut.tokens.min(groups.tile_rows()))
            }
            _ => y_rows.div_ceil(cut.tokens),
        };
        let cost = |cut: &Cut| {
            let blocks = weight_rows.div_ceil(cut.weight_rows()) * tiles(cut);
            cut.time * blocks.div_ceil(properties.multiprocessors.max(1) as usize)
        };
        let fits = |cut: &Cut| {
            let fits = match which {
                // Tiles of experts are short. With two blocks at a time, one computes while the other begins or ends: 10%
                // faster. Large tiles are for the other kernel.
                RowSelection::Pairs { groups, .. } if cut.family == Family::Mma => {
                    cut.blocks > 1 && groups.tile_rows() <= TILE
                }
                _ => true,
            };
            fits && cut.fits(cuda, format) && cuda.may(cut.family)
        };
        CUTS.into_iter().filter(fits).min_by_key(cost).unwrap_or(CUTS[0])
    }

    /// Whether a device can run it.
    fn fits(&self, cuda: &Cuda, format: Format) -> bool {
        let properties = cuda.device.gpu().properties();
        self.family.runs_on(properties.architecture) && self.shared_bytes(format) <= properties.shared_bytes as usize
    }

    /// Rows of weights of a block.
    fn weight_rows(&self) -> usize {
        16 * self.warps * self.fragments / self.split
    }

    fn file(&self) -> &'static str {
        if self.family == Family::Wgmma { "gemm_wgmma.cu" } else { "gemm.cu" }
    }

    /// The text's definitions. `both`: for a gate and an up weight.
    fn defines(&self, format: Format, both: bool) -> Vec<(&'static str, String)> {
        let mut defines = vec![
            ("FORMAT", format.name().to_owned()),
            ("GATED", usize::from(both).to_string()),
            ("TOKENS", self.tokens.to_string()),
            ("WARPS", self.warps.to_string()),
            ("FRAGMENTS", self.fragments.to_string()),
            ("BLOCKS", self.blocks.to_string()),
            ("STAGES", self.stages.to_string()),
        ];
        if self.family == Family::Mma {
            defines.extend([("TILE", TILE.to_string()), ("SPLIT", self.split.to_string())]);
        }
        defines
    }

    fn shared_bytes(&self, format: Format) -> usize {
        // Columns of X in a step: `STEP` in the kernels' units. For `wgmma`, stages begin at a multiple of 1,024.
        let (step, more) = match self.family {
            Family::Wgmma => (128, 1024),
            _ if format.is_float() => (64, 0),
            _ => (256, 0),
        };
        self.stages * self.tokens * self.split * step * size_of::<u16>() + more
    }
}

shared_struct! {
    #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(super) struct GemmParams in "gemm.cuh" {
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
        pairs_per_row: u32,
        epilogue: EpilogueParams,
        padding: u32,
    }
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
    launch(cuda, op, [w, w], x, which, [bias, None], false, epilogue, y)
}

/// H = activation(gate · x + bias, up · x + bias), for two weights of one shape and format.
pub(super) fn gate_up(
    cuda: &Cuda,
    op: &'static str,
    weights: [&PlaneRows; 2],
    x: &Act,
    which: RowSelection,
    bias: Option<[&Buffer<f32>; 2]>,
    activation: Activation,
    h: &ViewMut<f32>,
) -> Result<()> {
    let matrix = weights[0].rows;
    let bias = Bias::both(bias, matrix);
    launch(cuda, op, weights, x, which, bias, true, ProductEpilogue::Gate(activation), h)
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
    y: &ViewMut<f32>,
) -> Result<()> {
    if y.rows() == 0 {
        return Ok(());
    }
    let weight_rows = if both { 2 * w.rows } else { w.rows };
    let cut = Cut::new(cuda, w.format, weight_rows, which, y.rows());
    let (ids_stride, pairs_per_row, tiles) = match which {
        RowSelection::All => (0, 1, y.rows().div_ceil(cut.tokens)),
        RowSelection::Ids(ids) => (ids.layout().stride(), 1, y.rows().div_ceil(cut.tokens)),
        // One more is for pairs without an expert.
        RowSelection::Pairs { groups, pairs_per_row } => {
            (0, pairs_per_row, max_tiles(w.experts, y.rows(), groups.tile_rows()) + 1)
        }
    };
    // The kernel uses the highest bit of a row of Y as a mark.
    if y.rows() > i32::MAX as usize {
        let rule = "must be below 2^31 on a GPU";
        return Err(Error::Range { op, what: "rows of the output", found: y.rows().to_string(), rule });
    }
    let params = GemmParams {
        row_bytes: w.row_bytes as u64,
        matrix_bytes: w.matrix_bytes() as u64,
        y_stride: y.layout().stride() as u64,
        ids_stride: ids_stride as u64,
        bias_stride: bias[0].map_or(0, |bias| bias.matrix) as u64,
        outputs: word(op, "outputs", w.rows)?,
        blocks: word(op, "blocks in a row", w.blocks())?,
        x_rows: word(op, "rows of X", x.rows())?,
        x_blocks: word(op, "columns", x.cols().div_ceil(32))?,
        y_rows: word(op, "rows of Y", y.rows())?,
        pairs_per_row: word(op, "pairs of a row", pairs_per_row)?,
        epilogue: epilogue.into(),
        padding: 0,
    };
    let grid = elements("blocks", &[weight_rows.div_ceil(cut.weight_rows()), tiles])?;
    let defines = cut.defines(w.format, both);
    let defines: Vec<_> = defines.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let file = cut.file();
    let entry = file.trim_end_matches(".cu");
    let ids = if let RowSelection::Ids(ids) = &which { Arg::read(ids) } else { Arg::Null };
    let [pairs, tiles, tile_count] = lists(which);
    let [bias, up_bias] = bias.map(bias_arg);
    let x: &GpuAct = x.storage(op)?;
    let (x, up) = (x.bf16(Access::Read), if both { up.arg() } else { Arg::Null });
    let y = if both { Arg::write(y) } else { epilogue.output(y) };
    let params = Arg::params(&params);
    cuda.device.launch(&Launch {
        kernel: Kernel { file, entry, defines: &defines },
        grid: [word(op, "blocks", grid)?, 1, 1],
        block: 32 * (cut.warps + cut.copiers) as u32,
        shared: cut.shared_bytes(w.format) as u32,
        overlap: true,
        args: &[w.arg(), up, x, ids, pairs, tiles, tile_count, bias, up_bias, y, cuda.device.flag(), params],
    })
}

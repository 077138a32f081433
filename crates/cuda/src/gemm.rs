//! Products of weights with many rows of activations, on tensor cores: the host side of `kernels/gemm.cu` and
//! `kernels/gemm_wgmma.cu`.

use super::Cuda;
use super::family::{Family, Shape};
use super::gemm_sum;
use gristmill_gpu::Unit;
use gristmill_gpu::epilogue::{EpilogueParams, ProductEpilogue};
use gristmill_gpu::layout::plane_bytes;
use gristmill_gpu::product::{PairOrder, Product, RowSelection, word};
use gristmill_gpu::{Access, Arg, Kernel, Launch, Scratch, TensorMap, shared_struct};
use gristmill_kernels::act::{ACT_BLOCK, Precision};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::format::Format;
use gristmill_kernels::groups::max_tiles;
use gristmill_kernels::ops::elements;

/// Rows of a full tile of [`gristmill_kernels::groups::Groups`] for `gemm.cu`.
const TILE: usize = super::moe::TILE_ROWS;
/// The minimum number of rows of X for which these kernels are faster than `gemv.rs`. On an H200, with Q4_K, 4 and 8
/// rows of 5,120 × 2,048 take 12.2 and 20.9 µs there, and 14.7 and 14.4 here. 2,048 × 4,096 takes 11.2 and 18.3 there,
/// and 12.4 and 12.3 here.
const FEWEST_ROWS: usize = 5;
/// Pairs for each expert from which on the same is true. For 128 experts, gate and up of 768 × 2,048, there and here:
/// 99 and 131 µs for two pairs each, 171 and 133 for four.
const FEWEST_PAIRS: usize = 3;

/// Columns that [`Cut::time`] is for.
const TIMED_COLUMNS: usize = 2048;
/// The most blocks that share the columns of a tile.
const MOST_SHARES: usize = 8;
/// The fixed cost of a block, in columns.
const COLUMNS_AROUND: usize = 384;
/// The time of the launch that adds shares, in the unit of [`Cut::time`], of which an H200 does three in 1 µs; and
/// elements that it reads and writes in such a unit.
const SUM_TIME: usize = 4;
const SUMS_PER_TIME: usize = 400_000;

/// How the work is cut.
#[derive(Clone, Copy)]
struct Cut {
    /// `Mma` or `Wgmma`.
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
    /// Rounds of columns of X that are in shared memory: the most, for `wgmma`.
    stages: usize,
    /// Chunks of a warp's weights in shared memory, for `wgmma`.
    chunks: usize,
    /// How long a block takes for [`TIMED_COLUMNS`], relative to the others' (measured on an H200).
    time: usize,
}

impl Cut {
    const fn mma(tokens: usize, fragments: usize, split: usize, blocks: usize, stages: usize, time: usize) -> Self {
        Self { family: Family::Mma, tokens, warps: 8, copiers: 0, fragments, split, blocks, stages, chunks: 0, time }
    }

    const fn wgmma(tokens: usize, warps: usize, fragments: usize, chunks: usize, time: usize) -> Self {
        let (family, copiers, split, stages, blocks) = (Family::Wgmma, 8, 1, 8, 1);
        Self { family, tokens, warps, copiers, fragments, split, blocks, stages, chunks, time }
    }
}

/// A variant of the GEMM kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GemmVariant {
    /// One weight, a block for each tile.
    Plain,
    /// One weight, blocks that share the columns of a tile.
    SharedColumns,
    /// Gate and up.
    Gated,
}

/// Narrow ones start and end sooner, most of all if their warps share the columns; large ones unpack each weight for
/// more rows of X, and read each row of X for more weights.
const CUTS: [Cut; 7] = [
    Cut::mma(32, 1, 1, 2, 3, 50),
    Cut::mma(32, 1, 4, 1, 2, 20),
    Cut::mma(64, 1, 1, 2, 2, 70),
    Cut::mma(64, 2, 1, 1, 3, 120),
    Cut::wgmma(64, 12, 1, 3, 66),
    Cut::wgmma(128, 8, 1, 3, 62),
    Cut::wgmma(128, 8, 2, 2, 110),
];

/// Columns of X in a stage of `gemm_wgmma.cu`.
const STAGE_COLUMNS: usize = 64;
/// Shared memory of a multiprocessor of compute capability 9.0, and what the system takes for each block.
const MULTIPROCESSOR_SHARED: usize = 228 << 10;
const BLOCK_SHARED: usize = 1 << 10;
/// Columns of a group of weights with one scale, at least, and bytes of the scale and offset of one.
const GROUP_COLUMNS: usize = 16;
const SCALE_BYTES: usize = 8;

/// Formats that the kernels multiply: quantised ones, bfloat16, and floats with fewer bits. F16 has more bits than bfloat16
/// would keep.
fn known(format: Format) -> bool {
    !format.is_float() || format.is_bf16() || format.is_narrow_float()
}

pub(super) fn units() -> impl Iterator<Item = Unit> {
    let formats = Format::ALL.iter().copied().filter(|&format| known(format));
    let cuts = formats.flat_map(|format| CUTS.map(|cut| (format, cut))).filter(|(format, cut)| cut.takes(*format));
    cuts.flat_map(|(format, cut)| {
        let mut forms = vec![
            (GemmVariant::Plain, false),
            (GemmVariant::SharedColumns, false),
            (GemmVariant::Gated, false),
            (GemmVariant::Gated, true),
        ];
        // Outputs of experts alone.
        forms.extend(cut.is_for_experts().then_some((GemmVariant::Plain, true)));
        let kinds = move |(form, rounded)| cut.kinds(form, rounded).map(move |kinds| (form, rounded, kinds));
        forms.into_iter().flat_map(kinds).map(move |(form, rounded, kinds)| Unit {
            file: cut.file(),
            defines: cut.defines(format, form, rounded, kinds),
        })
    })
}

/// Whether these kernels are for a product.
pub(super) fn serves(cuda: &Cuda, shape: &Shape) -> bool {
    let enough = shape.experts.is_none_or(|experts| shape.rows >= FEWEST_PAIRS * experts);
    enough && shape.rows >= FEWEST_ROWS && cannot(cuda, Family::Mma, shape.weight.format, shape.precision).is_none()
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
    /// The fastest for a product, if the router is even, and how many blocks share the columns of a tile.
    fn new(cuda: &Cuda, product: &Product) -> (Self, usize) {
        let fits = |cut: &Self| {
            let fits = match product.rows {
                // Large tiles are for the other kernel.
                RowSelection::Pairs { groups, .. } if cut.family == Family::Mma => {
                    cut.is_for_experts() && groups.tile_rows() <= TILE
                }
                RowSelection::Pairs { groups, .. } => groups.tile_rows() <= cut.tokens,
                _ => true,
            };
            fits && cut.fits(cuda, product.format()) && cuda.may(cut.family)
        };
        let shared = |cut: Self| (1..=cut.most_shares(product)).map(move |shares| (cut, shares));
        let cuts = CUTS.into_iter().filter(fits).flat_map(shared);
        cuts.min_by_key(|(cut, shares)| cut.cost(cuda, product, *shares)).unwrap_or((CUTS[0], 1))
    }

    /// The time of a product whose tiles are shared by this number of blocks each.
    fn cost(&self, cuda: &Cuda, product: &Product, shares: usize) -> usize {
        let multiprocessors = cuda.device.gpu().properties().multiprocessors.max(1) as usize;
        let tiles = weight_rows(product).div_ceil(self.weight_rows()) * self.likely_tiles(product);
        let columns = self.rounds(product).div_ceil(shares) * self.round_columns(product.format());
        let rounds_of_blocks = (tiles * shares).div_ceil(multiprocessors);
        let multiply = self.time * (columns + COLUMNS_AROUND) * rounds_of_blocks;
        let sums = product.y.rows() * product.weight().rows * (shares + 1);
        let add = if shares > 1 { SUM_TIME + sums / SUMS_PER_TIME } else { 0 };
        // In a unit that no division rounds: two cuts may be as near as 165 · 12 and 124 · 16.
        multiply + add * (TIMED_COLUMNS + COLUMNS_AROUND)
    }

    /// The most blocks that can share the columns of a tile.
    fn most_shares(&self, product: &Product) -> usize {
        let dense = matches!(product.rows, RowSelection::All) && product.up.is_none();
        let most = if dense { MOST_SHARES.min(self.rounds(product)) } else { 1 };
        (1..=most).rev().find(|&shares| gemm_sum::serves(product, shares)).unwrap_or(1)
    }

    /// Columns that a block multiplies between two barriers.
    fn round_columns(&self, format: Format) -> usize {
        self.step_columns(format) * self.split
    }

    fn rounds(&self, product: &Product) -> usize {
        product.weight().cols.div_ceil(self.round_columns(product.format()))
    }

    /// Columns of a step: `STEP` in the kernels.
    fn step_columns(&self, format: Format) -> usize {
        match self.family {
            Family::Wgmma if format.is_bf16() => 128,
            Family::Wgmma => 256,
            _ if format.is_bf16() => 64,
            _ => 256,
        }
    }

    /// Tiles of rows of X, if the router is even.
    fn likely_tiles(&self, product: &Product) -> usize {
        match product.rows {
            // Each expert has a last tile, half of which is there on average.
            RowSelection::Pairs { groups, .. } => {
                let experts = groups.experts();
                experts.max(experts / 2 + product.y.rows() / self.tokens.min(groups.tile_rows()))
            }
            _ => product.y.rows().div_ceil(self.tokens),
        }
    }

    /// Tiles of rows of X, at most.
    fn tiles(&self, product: &Product) -> usize {
        match product.rows {
            // At least one without rows zeroes the pairs without an expert.
            RowSelection::Pairs { groups, .. } => {
                max_tiles(product.weight().experts, product.y.rows(), groups.tile_rows()) + 1
            }
            _ => product.y.rows().div_ceil(self.tokens),
        }
    }

    /// Whether it may multiply experts. Their tiles are short: with two blocks at a time, one computes while the other
    /// starts or ends, 10% faster.
    fn is_for_experts(&self) -> bool {
        self.family == Family::Wgmma || self.blocks > 1
    }

    /// Whether a device can run it.
    fn fits(&self, cuda: &Cuda, format: Format) -> bool {
        let properties = cuda.device.gpu().properties();
        let fits = self.shared_bytes(format) <= properties.shared_bytes as usize;
        self.family.runs_on(properties.architecture) && fits && self.takes(format)
    }

    /// Whether enough stages of X are left beside the weights of this format.
    fn takes(&self, format: Format) -> bool {
        self.family == Family::Mma || self.stages(format) >= LEAST_STAGES
    }

    /// Rows of weights of a block.
    fn weight_rows(&self) -> usize {
        16 * self.warps * self.fragments / self.split
    }

    fn threads(&self) -> u32 {
        32 * (self.warps + self.copiers) as u32
    }

    fn file(&self) -> &'static str {
        if self.family == Family::Wgmma { "gemm_wgmma.cu" } else { "gemm.cu" }
    }

    /// The kinds of epilogue and of activation that kernels of a form are compiled for.
    fn kinds(&self, form: GemmVariant, rounded: bool) -> impl Iterator<Item = [u32; 2]> + use<> {
        let known: &[[u32; 2]] = match form {
            _ if self.family == Family::Mma => &ALL_KINDS[..1],
            GemmVariant::Gated => &ALL_KINDS[..4],
            GemmVariant::Plain if !rounded => &ALL_KINDS,
            GemmVariant::Plain | GemmVariant::SharedColumns => &ALL_KINDS[..1],
        };
        known.iter().copied()
    }

    /// The definitions of a unit. `kinds`: of the epilogue and of its activation, which only kernels for `wgmma` are compiled for.
    fn defines(
        &self,
        format: Format,
        form: GemmVariant,
        rounded: bool,
        kinds: [u32; 2],
    ) -> Vec<(&'static str, String)> {
        let mut defines = vec![
            ("FORMAT", format.name().to_owned()),
            ("GATED", usize::from(form == GemmVariant::Gated).to_string()),
            ("SHARED_COLUMNS", usize::from(form == GemmVariant::SharedColumns).to_string()),
            ("ROUNDED", usize::from(rounded).to_string()),
            ("TOKENS", self.tokens.to_string()),
            ("WARPS", self.warps.to_string()),
            ("FRAGMENTS", self.fragments.to_string()),
            ("STAGES", self.stages(format).to_string()),
        ];
        if self.family == Family::Mma {
            let more = [("TILE", TILE), ("BLOCKS", self.blocks), ("SPLIT", self.split)];
            defines.extend(more.map(|(name, value)| (name, value.to_string())));
        } else {
            let planes: Vec<_> = plane_bytes(format).iter().map(usize::to_string).collect();
            let more = [("PLANE_BYTES", planes.join(",")), ("STAGED_ROW", self.staged_row(format).to_string())];
            defines.extend(more);
            defines.extend([("CHUNKS", self.chunks.to_string()), ("COPIERS", self.copiers.to_string())]);
            defines.extend([("EPILOGUE", kinds[0].to_string()), ("ACTIVATION", kinds[1].to_string())]);
        }
        defines
    }

    /// Stages of X: for `wgmma` as many as there is shared memory.
    fn stages(&self, format: Format) -> usize {
        if self.family == Family::Mma {
            return self.stages;
        }
        // A stage has a tile's rows of Y too, and two barriers; one tile more is known.
        let known = self.tokens * size_of::<u32>();
        let stage = self.stage_bytes(format) + known + 16;
        let most = MULTIPROCESSOR_SHARED / self.blocks - BLOCK_SHARED - STAGES_ALIGNMENT - known;
        (most.saturating_sub(self.weight_bytes(format)) / stage).clamp(1, self.stages)
    }

    fn stage_bytes(&self, format: Format) -> usize {
        let columns = if self.family == Family::Wgmma { STAGE_COLUMNS } else { self.round_columns(format) };
        self.tokens * columns * size_of::<u16>()
    }

    /// Bytes of shared memory for weights and their scales, for `wgmma`.
    fn weight_bytes(&self, format: Format) -> usize {
        let rows = self.warps * self.fragments * 16;
        let groups = if format.is_bf16() { 1 } else { self.step_columns(format) / GROUP_COLUMNS };
        rows * (self.chunks * self.staged_row(format) + groups * SCALE_BYTES)
    }

    /// Bytes of a row of a chunk in shared memory: all units of 16 bytes of which its planes can have a part, and an odd
    /// number of them, so that the same columns of several rows are in different banks.
    fn staged_row(&self, format: Format) -> usize {
        let blocks = self.step_columns(format) / format.block_len();
        let window = |bytes: usize| match bytes {
            _ if bytes.is_multiple_of(16) || 16 % bytes == 0 => bytes.next_multiple_of(16),
            _ => (bytes + 30) / 16 * 16,
        };
        let units = plane_bytes(format).into_iter().map(|bytes| window(blocks * bytes) / 16).sum::<usize>();
        (units | 1) * 16
    }

    fn shared_bytes(&self, format: Format) -> usize {
        let more = if self.family == Family::Wgmma { STAGES_ALIGNMENT + self.weight_bytes(format) } else { 0 };
        self.stages(format) * self.stage_bytes(format) + more
    }

    /// Blocks of a launch: for `wgmma` as many as run at a time, each of which takes its share of the tiles.
    fn grid(&self, cuda: &Cuda, product: &Product, shares: usize) -> Result<usize> {
        let blocks = elements("blocks", &[weight_rows(product).div_ceil(self.weight_rows()), self.tiles(product)])?;
        let multiprocessors = cuda.device.gpu().properties().multiprocessors.max(1) as usize;
        let at_once = (multiprocessors * self.blocks / shares).max(1);
        Ok(if self.family == Family::Wgmma { blocks.min(at_once) } else { blocks })
    }
}

/// Kinds of epilogues with the kinds of their activations: of gate and up, or stored; gates that Y has; sums.
const ALL_KINDS: [[u32; 2]; 9] = [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1], [1, 2], [1, 3], [2, 0]];
/// Stages of X without which the products of `gemm_wgmma.cu` would wait for copies.
const LEAST_STAGES: usize = 3;
/// What the stages of `gemm_wgmma.cu` are aligned to in shared memory.
const STAGES_ALIGNMENT: usize = 1024;
/// Neighbouring rows of X that one copy brings there.
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

/// Activations in bfloat16 as a matrix that is read in tiles of so many rows.
fn tiles_of(x: Arg, rows: usize, cols: usize, tile_rows: u32) -> Arg {
    let Arg::Buffer { region, offset, .. } = x else { return Arg::Null };
    let columns = cols.next_multiple_of(ACT_BLOCK);
    Arg::Tiles(TensorMap { region, offset, size: [columns, rows], stride: columns * TensorMap::ELEMENT, tile_rows })
}

/// Launches a product; activations are the caller's to prepare.
pub(super) fn multiply(cuda: &Cuda, product: &Product) -> Result<()> {
    let (cut, shares) = Cut::new(cuda, product);
    // The kernel uses the highest bit of a row of Y as a mark.
    if product.y.rows() > i32::MAX as usize {
        let (op, rule) = (product.op, "must be below 2^31 on a GPU");
        return Err(Error::Range { op, what: "rows of the output", found: product.y.rows().to_string(), rule });
    }
    if shares == 1 {
        return launch(cuda, product, cut, None);
    }
    let workspace = gemm_sum::workspace(cuda, product, shares)?;
    launch(cuda, product, cut, Some((shares, &workspace)))?;
    gemm_sum::add(cuda, product, shares, &workspace)
}

/// Launches a product to Y, or its shares to a workspace.
fn launch(cuda: &Cuda, product: &Product, cut: Cut, shares: Option<(usize, &Scratch<1>)>) -> Result<()> {
    let Product { op, x, rows, biases: [bias, _], epilogue, y, up, rounded, .. } = *product;
    let (w, (ids_stride, pairs_per_row)) = (product.weight(), rows.strides());
    let form = match shares {
        Some(_) => GemmVariant::SharedColumns,
        None if up.is_some() => GemmVariant::Gated,
        None => GemmVariant::Plain,
    };
    let blocks = cut.grid(cuda, product, shares.map_or(1, |(shares, _)| shares))?;
    let order = rows.order();
    let x_box = if matches!(rows, RowSelection::All) || order == PairOrder::XByExpert { X_BOX } else { 1 };
    // Numbers of 16 bits are in the place of activations, or of the first half of a row of floats.
    let (y_stride, y_arg) = match product.act.filter(|_| rounded) {
        Some(act) => (w.rows, act.storage.bf16(Access::Write)),
        None => (y.layout().stride() * if rounded { 2 } else { 1 }, product.y_arg()),
    };
    let whole = (y_stride, epilogue, y_arg, product.bias_args());
    let (y_stride, epilogue, y_arg, [bias_arg, up_bias]) = shares.map_or(whole, |(_, workspace)| {
        (w.rows, ProductEpilogue::Store, workspace.arg(0, Access::Write), [Arg::Null; 2])
    });
    let epilogue = EpilogueParams::from(epilogue);
    let kinds = match form {
        GemmVariant::Gated => [0, epilogue.kinds()[1]],
        _ if rounded => [0, 0],
        _ => epilogue.kinds(),
    };
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
        epilogue,
        x_box,
        x_by_expert: (order == PairOrder::XByExpert).into(),
        y_by_expert: (order == PairOrder::YByExpert).into(),
    };
    let defines = cut.defines(w.format, form, rounded, kinds);
    let defines: Vec<_> = defines.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let file = cut.file();
    let kernel = Kernel { file, entry: file.trim_end_matches(".cu"), defines: &defines };
    let [ids, pairs, tiles, tile_count] = product.rows.args();
    let (weight, up, x_arg) = (w.arg(), product.up_arg(), product.bf16()?);
    let x_arg = if cut.family == Family::Wgmma { tiles_of(x_arg, x.rows(), x.cols(), x_box) } else { x_arg };
    let (flag, params) = (cuda.device.flag(), Arg::params(&params));
    let args = [weight, up, x_arg, ids, pairs, tiles, tile_count, bias_arg, up_bias, y_arg, flag, params];
    let grid = [word(op, "blocks", blocks)?, shares.map_or(1, |(shares, _)| shares) as u32, 1];
    let launch = Launch::new(kernel, grid, cut.threads(), &args);
    cuda.device.launch(&Launch { shared: cut.shared_bytes(w.format) as u32, ..launch })
}

fn weight_rows(product: &Product) -> usize {
    product.weight().rows * if product.up.is_some() { 2 } else { 1 }
}

//! The form of `gemm.cu` or `gemm_wgmma.cu` that multiplies, and how many blocks share a tile's columns.

use super::card::Card;
use super::cut::{Cut, TILE_ROWS};
use super::pairs::SMALL_TILE_ROWS;
use super::shape::Shape;
use super::thresholds::Thresholds;
use crate::family::Family;
use gristmill_gpu::Unit;
use gristmill_gpu::epilogue::EpilogueParams;
use gristmill_kernels::act::Precision;
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::elements;

/// Columns that [`Cut::time`] is for.
pub(super) const TIMED_COLUMNS: usize = 2048;
/// The most blocks that share the columns of a tile.
const MOST_SHARES: usize = 8;
/// The fixed cost of a block, in columns.
const COLUMNS_AROUND: usize = 384;
/// The time of the launch that adds shares, in the unit of [`Cut::time`], of which an H200 does three in 1 µs; and
/// elements that it reads and writes in such a unit.
const SUM_TIME: usize = 4;
const SUMS_PER_TIME: usize = 400_000;
/// The most rows of Y whose shares are added: blocks along the grid's y.
const MOST_SHARED_ROWS: usize = 65_535;
/// Bytes that the shares of a product may take.
const MOST_SHARE_BYTES: usize = 16 << 20;

/// Kinds of epilogues with the kinds of their activations: of gate and up, or stored; gates that Y has; sums; without a gate.
const ALL_KINDS: [[u32; 2]; 10] = [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1], [1, 2], [1, 3], [2, 0], [3, 4]];

/// The same of rounded results of one weight: stored, and without a gate.
const ROUNDED_KINDS: [[u32; 2]; 2] = [ALL_KINDS[0], ALL_KINDS[9]];

/// A variant of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// One weight, a block for each tile.
    Plain,
    /// One weight, blocks that share the columns of a tile.
    SharedColumns,
    /// Gate and up.
    Gated,
}

/// A launch of `gemm.cu` or `gemm_wgmma.cu`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GemmPlan {
    pub(crate) cut: Cut,
    /// Blocks that share the columns of a tile.
    pub(crate) shares: usize,
    /// Whether rows of X are brought into the order of experts first.
    pub(crate) gathers: bool,
    variant: Variant,
    is_rounded: bool,
    /// The kinds of the epilogue and of its activation, which only kernels for `wgmma` are compiled for.
    kinds: [u32; 2],
}

/// Bytes of this number of shares of a product, each with all of Y; `None` if these are more than may be.
pub(crate) fn share_bytes(rows: usize, outputs: usize, shares: usize) -> Option<usize> {
    let bytes = [rows, outputs, shares, size_of::<f32>()].into_iter().try_fold(1, usize::checked_mul)?;
    (rows <= MOST_SHARED_ROWS && bytes <= MOST_SHARE_BYTES).then_some(bytes)
}

/// Whether these kernels are the fastest for a product, if they can multiply it.
pub(super) fn serves(card: &Card, rows: usize, experts: Option<usize>) -> bool {
    let thresholds = card.thresholds();
    rows >= thresholds.gemm_rows && experts.is_none_or(|experts| rows >= thresholds.gemm_pairs * experts)
}

/// Why a device's kernels of this family do not multiply such a weight with such activations, if so.
pub(super) fn cannot(card: &Card, family: Family, format: Format, precision: Precision) -> Option<&'static str> {
    if !family.takes(format) {
        Some("tensor cores take quantised weights and BF16")
    } else if precision != Precision::Fast {
        Some("tensor cores round activations, which must be of precision `Fast`")
    } else if !card.thresholds().cuts.iter().any(|cut| cut.family == family && fits(card, cut, format)) {
        Some("the device has no such instructions, or too little shared memory")
    } else {
        None
    }
}

/// Whether a device can run a form.
fn fits(card: &Card, cut: &Cut, format: Format) -> bool {
    card.runs(cut.family) && cut.shared_bytes(format) <= card.shared_bytes && cut.takes(format)
}

/// Every unit of a plan.
pub(super) fn units(thresholds: &Thresholds) -> impl Iterator<Item = Unit> {
    let pairs = Format::ALL.iter().flat_map(|&format| thresholds.cuts.iter().map(move |cut| (format, *cut)));
    pairs.filter(|(format, cut)| cut.takes(*format)).flat_map(|(format, cut)| {
        let variants = [
            (Variant::Plain, false),
            (Variant::SharedColumns, false),
            (Variant::Gated, false),
            (Variant::Gated, true),
            (Variant::Plain, true),
        ];
        variants
            .into_iter()
            .flat_map(move |(variant, is_rounded)| {
                let plan =
                    move |&kinds: &[u32; 2]| GemmPlan { cut, shares: 1, gathers: false, variant, is_rounded, kinds };
                let kinds = compiled_kinds(cut.family, variant, is_rounded);
                // Only outputs of experts are rounded without an activation.
                let stored = (variant, is_rounded) == (Variant::Plain, true) && !cut.is_for_experts();
                let skipped = usize::from(stored && cut.family == Family::Wgmma);
                kinds[skipped..].iter().map(plan)
            })
            .map(move |plan| plan.unit(format))
    })
}

/// The kinds of epilogue and of activation that kernels of a variant are compiled for.
fn compiled_kinds(family: Family, variant: Variant, is_rounded: bool) -> &'static [[u32; 2]] {
    match variant {
        _ if family == Family::Mma => &ALL_KINDS[..1],
        Variant::Gated => &ALL_KINDS[..4],
        Variant::Plain if !is_rounded => &ALL_KINDS,
        Variant::Plain => &ROUNDED_KINDS,
        Variant::SharedColumns => &ALL_KINDS[..1],
    }
}

impl GemmPlan {
    /// The fastest for a product, if the router is even.
    pub(super) fn new(card: &Card, shape: &Shape) -> Self {
        let format = shape.problem.format;
        let can = |cut: &&Cut| serves_tiles(cut, shape) && fits(card, cut, format) && card.may(cut.family);
        let shared = |cut: &Cut| {
            let cut = *cut;
            (1..=most_shares(&cut, shape)).map(move |shares| (cut, shares))
        };
        let all = card.thresholds().cuts;
        let fastest =
            all.iter().filter(can).flat_map(shared).min_by_key(|(cut, shares)| cost(cut, card, shape, *shares));
        let (cut, shares) = fastest.unwrap_or((all[0], 1));
        let variant = match shares {
            2.. => Variant::SharedColumns,
            _ if shape.is_gated => Variant::Gated,
            _ => Variant::Plain,
        };
        let kinds = match (variant, EpilogueParams::from(shape.epilogue).kinds()) {
            (Variant::Gated, [_, activation]) => [0, activation],
            (Variant::Plain, kinds) if !shape.is_rounded || ROUNDED_KINDS.contains(&kinds) => kinds,
            (Variant::Plain | Variant::SharedColumns, _) => [0, 0],
        };
        // Rows that lie apart are a copy each, which limits tiles of many.
        let apart =
            shape.has_spare && shape.tile_rows >= TILE_ROWS || shape.has_ids && shape.problem.rows > SMALL_TILE_ROWS;
        let gathers = cut.family == Family::Wgmma && apart;
        Self { cut, shares, gathers, variant, is_rounded: shape.is_rounded, kinds }
    }

    /// The unit for weights of a format.
    pub(crate) fn unit(&self, format: Format) -> Unit {
        let mut defines = vec![
            ("FORMAT", format.name().to_owned()),
            ("GATED", usize::from(self.variant == Variant::Gated).to_string()),
            ("SHARED_COLUMNS", usize::from(self.variant == Variant::SharedColumns).to_string()),
            ("ROUNDED", usize::from(self.is_rounded).to_string()),
        ];
        defines.extend(self.cut.defines(format));
        if self.cut.family == Family::Wgmma {
            let [epilogue, activation] = self.kinds;
            defines.extend([("EPILOGUE", epilogue.to_string()), ("ACTIVATION", activation.to_string())]);
        }
        Unit { file: self.cut.file(), defines }
    }

    /// Blocks of a launch: for `wgmma` as many as run at a time, each of which takes its share of the tiles.
    pub(crate) fn grid(&self, card: &Card, shape: &Shape) -> Result<usize> {
        let Self { cut, shares, .. } = self;
        let of_weights = shape.weight_rows().div_ceil(cut.weight_rows());
        let blocks = elements("blocks", &[of_weights, shape.most_tiles(cut.tokens)])?;
        let at_once = (card.multiprocessors * cut.blocks / shares).max(1);
        Ok(if cut.family == Family::Wgmma { blocks.min(at_once) } else { blocks })
    }
}

/// Whether a form multiplies tiles of experts' pairs as they are grouped. Large tiles are for `gemm_wgmma.cu`.
fn serves_tiles(cut: &Cut, shape: &Shape) -> bool {
    match shape.problem.experts {
        Some(_) if cut.family == Family::Mma => cut.is_for_experts() && shape.tile_rows <= TILE_ROWS,
        Some(_) => shape.tile_rows <= cut.tokens,
        None => true,
    }
}

/// The time of a product whose tiles are shared by this number of blocks each.
fn cost(cut: &Cut, card: &Card, shape: &Shape, shares: usize) -> usize {
    let tiles = shape.weight_rows().div_ceil(cut.weight_rows()) * likely_tiles(cut, shape);
    let columns = rounds(cut, shape).div_ceil(shares) * cut.round_columns(shape.problem.format);
    let rounds_of_blocks = (tiles * shares).div_ceil(card.multiprocessors);
    let multiply = cut.time * (columns + COLUMNS_AROUND) * rounds_of_blocks;
    let sums = shape.problem.rows * shape.outputs * (shares + 1);
    let add = if shares > 1 { SUM_TIME + sums / SUMS_PER_TIME } else { 0 };
    // In a unit that no division rounds: two forms may be as near as 165 · 12 and 124 · 16.
    multiply + add * (TIMED_COLUMNS + COLUMNS_AROUND)
}

/// The most blocks that can share the columns of a tile.
fn most_shares(cut: &Cut, shape: &Shape) -> usize {
    let can_share = shape.is_dense() && !shape.is_gated && !shape.is_rounded;
    let most = if can_share { MOST_SHARES.min(rounds(cut, shape)) } else { 1 };
    let fits = |shares: &usize| share_bytes(shape.problem.rows, shape.outputs, *shares).is_some();
    (1..=most).rev().find(fits).unwrap_or(1)
}

fn rounds(cut: &Cut, shape: &Shape) -> usize {
    shape.cols.div_ceil(cut.round_columns(shape.problem.format))
}

/// Tiles of rows of X, if the router is even.
fn likely_tiles(cut: &Cut, shape: &Shape) -> usize {
    let rows = shape.problem.rows;
    match shape.problem.experts {
        // Each expert has a last tile, half of which is there on average.
        Some(experts) => experts.max(experts / 2 + rows / cut.tokens.min(shape.tile_rows)),
        None => rows.div_ceil(cut.tokens),
    }
}

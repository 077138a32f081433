//! The kernel of `gemm_f32.cu` that multiplies f32 weights with many rows.

use super::card::Card;
use super::gemm::share_bytes;
use super::shape::Shape;
use gristmill_gpu::Unit;
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_kernels::format::Format;

const FILE: &str = "gemm_f32.cu";
/// Blocks along the grid's y.
const GRID_Y: usize = 65_535;

/// A kernel, and what it is launched with: as in its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GemmF32Plan {
    pub(crate) entry: &'static str,
    /// Rows and outputs of a block, and its threads.
    pub(crate) rows: u32,
    pub(crate) outputs: u32,
    pub(crate) threads: u32,
    /// Blocks that share the columns of their outputs: of the second kernel, the most.
    pub(crate) shares: usize,
}

const FEW: GemmF32Plan = GemmF32Plan { entry: "gemm_f32_few", rows: 8, outputs: 4, threads: 256, shares: 1 };
const MANY: GemmF32Plan = GemmF32Plan { entry: "gemm_f32", rows: 32, outputs: 32, threads: 128, shares: 8 };
/// The same in tiles whose lanes have four times as many sums, if there is one for each multiprocessor.
const LARGE: GemmF32Plan = GemmF32Plan { entry: "gemm_f32_large", rows: 64, outputs: 64, threads: 128, shares: 1 };

/// Every unit of a plan.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    [Unit::new(FILE, &[])].into_iter()
}

impl GemmF32Plan {
    /// The kernel for a product, if there is one.
    pub(super) fn new(card: &Card, shape: &Shape) -> Option<Self> {
        let stores = matches!(shape.epilogue, ProductEpilogue::Store);
        // Rows are read by four floats.
        let fits = shape.problem.format == Format::F32 && shape.cols.is_multiple_of(4) && shape.is_dense();
        if !stores || !fits {
            return None;
        }
        let thresholds = card.thresholds();
        let [few, many] = thresholds.f32_rows;
        // Rows of so many tiles, as far as outputs fill whole ones.
        let tiles = card.multiprocessors.div_ceil((shape.outputs / LARGE.outputs as usize).max(1));
        let large = if shape.outputs < LARGE.outputs as usize { usize::MAX } else { tiles * LARGE.rows as usize };
        let kernels = [(large.max(many), LARGE), (many, MANY), (few, FEW)];
        let serves = |(fewest, kernel): &(usize, Self)| {
            shape.problem.rows >= *fewest && shape.outputs.div_ceil(kernel.outputs as usize) <= GRID_Y
        };
        let kernel = kernels.into_iter().find(serves).map(|(_, kernel)| kernel)?;
        let blocks =
            shape.problem.rows.div_ceil(kernel.rows as usize) * shape.outputs.div_ceil(kernel.outputs as usize);
        let most = (card.multiprocessors / blocks.max(1)).clamp(1, kernel.shares);
        let fit = |shares: &usize| share_bytes(shape.problem.rows, shape.outputs, *shares).is_some();
        Some(Self { shares: (2..=most).rev().find(fit).unwrap_or(1), ..kernel })
    }

    pub(crate) fn file(&self) -> &'static str {
        FILE
    }
}

//! A norm and the product that reads it in one launch: `norm_matmul.cu`, for steps of few tokens.

use super::card::Card;
use super::gemv::{inputs, int8_define, threads_log2};
use super::shape::reads_int8;
use crate::family::Family;
use gristmill_gpu::Unit;
use gristmill_gpu::layout::PlaneRows;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;

const FILE: &str = "norm_matmul.cu";
/// Threads of a block.
const BLOCK: usize = 256;
/// Weight rows of a thread group, for small weights, which want many blocks, and for large ones.
const GROUP_ROWS: [(usize, &str); 2] = [(1, "1"), (4, "4")];
/// Bytes of shared memory that every device has for a block, less what the kernel has besides.
const SHARED: usize = 44 << 10;

/// A part of a weight, as far as plans depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(super) format: Format,
    pub(super) outputs: usize,
    pub(super) cols: usize,
    /// See `kernels/weight.h`.
    pub(super) spans: usize,
}

impl From<&PlaneRows> for Part {
    fn from(part: &PlaneRows) -> Self {
        Self { format: part.format, outputs: part.rows, cols: part.cols, spans: part.spans }
    }
}

/// A launch of the kernel for a part of a weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NormMatmulPlan {
    int8: bool,
    group_rows: &'static str,
    /// Threads of a group, as a power of two.
    pub(crate) threads_log2: u32,
    /// Outputs and threads of a block.
    pub(crate) outputs: usize,
    pub(crate) block: usize,
    /// Bytes of shared memory for the prepared row.
    pub(crate) shared: usize,
}

impl NormMatmulPlan {
    /// Whether the kernel is for this number of rows of a part of a weight.
    pub(crate) fn serves(card: &Card, part: &Part, precision: Precision, rows: usize) -> bool {
        let thresholds = card.thresholds();
        let few = rows == 1 || rows <= thresholds.norm_rows && part.outputs <= thresholds.norm_small_outputs;
        let fits = shared_bytes(part.cols, reads_int8(part.format, precision)) <= SHARED;
        card.may(Family::Gemv) && rows > 0 && few && fits && part.cols > 0
    }

    pub(crate) fn new(card: &Card, part: &Part, precision: Precision) -> Self {
        let int8 = reads_int8(part.format, precision);
        let is_large = part.outputs > card.thresholds().norm_small_outputs;
        let (rows, group_rows) = GROUP_ROWS[usize::from(is_large)];
        let threads_log2 = threads_log2(card, part.spans, part.outputs.div_ceil(rows), BLOCK);
        let outputs = rows * (BLOCK >> threads_log2);
        Self { int8, group_rows, threads_log2, outputs, block: BLOCK, shared: shared_bytes(part.cols, int8) }
    }

    pub(crate) fn file(&self) -> &'static str {
        FILE
    }

    /// The definitions for weights of a format.
    pub(crate) fn defines(&self, format: Format) -> [(&'static str, &'static str); 3] {
        defines(format, self.int8, self.group_rows)
    }
}

/// Every unit of a plan.
pub(super) fn units() -> impl Iterator<Item = Unit> {
    inputs().flat_map(|(format, int8)| GROUP_ROWS.map(|(_, rows)| Unit::new(FILE, &defines(format, int8, rows))))
}

fn defines(format: Format, int8: bool, group_rows: &'static str) -> [(&'static str, &'static str); 3] {
    [("FORMAT", format.name()), ("INT8", int8_define(int8)), ("GROUP_ROWS", group_rows)]
}

fn shared_bytes(cols: usize, int8: bool) -> usize {
    if int8 { cols.div_ceil(32) * 80 } else { cols.next_multiple_of(4) * size_of::<f32>() }
}

//! A product as far as plans depend on it.

use crate::gather_rows;
use gristmill_gpu::epilogue::ProductEpilogue;
use gristmill_gpu::product::{Product, RowSelection};
use gristmill_kernels::act::{ActReader, Precision};
use gristmill_kernels::format::Format;
use gristmill_kernels::groups::max_tiles;

/// What the family that multiplies depends on. It is known before pairs are grouped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem {
    /// The operation, for errors.
    pub(super) op: &'static str,
    /// Of the weight.
    pub(super) format: Format,
    /// Of the activations.
    pub(super) precision: Precision,
    /// Rows of Y.
    pub(super) rows: usize,
    /// Experts, if the rows are pairs.
    pub(super) experts: Option<usize>,
}

/// A product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(super) problem: Problem,
    /// Outputs and columns of a matrix, and matrices of the weight.
    pub(super) outputs: usize,
    pub(super) cols: usize,
    pub(super) matrices: usize,
    /// Spans of a row of the weight: see `kernels/weight.h`.
    pub(super) spans: usize,
    /// Whether there is a second weight, up.
    pub(super) is_gated: bool,
    /// Whether rows of X are chosen by ids.
    pub(super) has_ids: bool,
    /// Pairs that share a row of X, and rows of a full tile of pairs: see [`gristmill_kernels::groups::Groups`].
    pub(super) pairs_per_row: usize,
    pub(super) tile_rows: usize,
    pub(super) epilogue: ProductEpilogue,
    /// See [`Product::rounded`].
    pub(super) is_rounded: bool,
    /// Whether there is memory for rows of X in the order of experts.
    pub(super) has_spare: bool,
}

/// Whether a product with a weight of this format reads activations as int8, or exact ones, in the kernels that are for
/// every format.
pub(crate) fn reads_int8(format: Format, precision: Precision) -> bool {
    precision == Precision::Fast && !format.is_float()
}

impl Problem {
    pub(crate) fn of(product: &Product) -> Self {
        let experts = match product.rows {
            RowSelection::Pairs { groups, .. } => Some(groups.experts()),
            _ => None,
        };
        Self {
            op: product.op,
            format: product.format(),
            precision: product.x.precision(),
            rows: product.y.rows(),
            experts,
        }
    }

    /// The product of a reader of activations, with a part of its weight. Products with slots or with copied experts are
    /// chosen as those with all experts, too.
    pub(crate) fn of_reader(format: Format, precision: Precision, reader: &ActReader) -> Self {
        Self {
            op: "name_readers",
            format,
            precision,
            rows: reader.rows.saturating_mul(reader.pairs_per_row.unwrap_or(1)),
            experts: reader.pairs_per_row.map(|_| reader.weight.experts()),
        }
    }

    pub(super) fn reads_int8(&self) -> bool {
        reads_int8(self.format, self.precision)
    }
}

impl Shape {
    pub(crate) fn of(product: &Product) -> Self {
        let weight = product.weight();
        let (pairs_per_row, tile_rows) = match product.rows {
            RowSelection::Pairs { groups, pairs_per_row, .. } => (pairs_per_row, groups.tile_rows()),
            _ => (1, 1),
        };
        Self {
            problem: Problem::of(product),
            outputs: weight.rows,
            cols: weight.cols,
            matrices: weight.experts,
            spans: weight.spans,
            is_gated: product.up.is_some(),
            has_ids: matches!(product.rows, RowSelection::Ids(_)),
            pairs_per_row,
            tile_rows,
            epilogue: product.epilogue,
            is_rounded: product.rounded,
            has_spare: product.spare.is_some_and(|memory| gather_rows::fits(product, memory)),
        }
    }

    /// Whether row i of X becomes row i of Y.
    pub(super) fn is_dense(&self) -> bool {
        self.problem.experts.is_none() && !self.has_ids
    }

    /// Rows of all weights that are multiplied together.
    pub(super) fn weight_rows(&self) -> usize {
        self.outputs * if self.is_gated { 2 } else { 1 }
    }

    /// Tiles of this number of rows of X, at most.
    pub(super) fn most_tiles(&self, rows: usize) -> usize {
        match self.problem.experts {
            // At least one without rows zeroes the pairs without an expert.
            Some(_) => max_tiles(self.matrices, self.problem.rows, self.tile_rows) + 1,
            None => self.problem.rows.div_ceil(rows),
        }
    }
}

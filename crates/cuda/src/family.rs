//! The families of kernels that multiply matrices.
//!
//! # CUDA products
//!
//! CUDA products have four families, chosen by the number of rows as known on the host (`cuda/src/family.rs`):
//!
//! | kernel source | instructions | rows |
//! | --- | --- | --- |
//! | `gemv.cu` | dot products | 1 or 2 |
//! | `gemm_int8.cu` | int8 on tensor cores | up to 16 |
//! | `gemm.cu` | `mma` in bfloat16 | more than the families above |
//! | `gemm_wgmma.cu` | `wgmma` in bfloat16, on compute capability 9.0 | most |
//!
//! Weights are on the long side of the tensor core. The lane that loaded them unpacks them in registers, once for up to
//! 64 tokens. Only activations pass through shared memory, in `gemm_wgmma.cu` weights too. If tiles are fewer than
//! multiprocessors, several blocks share a tile's columns, and `gemm_sum.cu` adds their sums. In `gemm_wgmma.cu`, the device
//! copies activations by itself, started by warps that do not multiply. If the last two families compute experts, gate and
//! up write the bfloat16 activations that down reads. Down then writes bfloat16 that is summed
//! (`gpu/src/experts/rounded.rs`). *Products with int8 activations depend on the number of rows, within the tolerance
//! of int8.* A deterministic backend multiplies only by int8. For many rows it uses `gemm_int8_tile.cu`: the same sums
//! in the same order, with weights unpacked once for up to 64 rows.
//!
//! # Deterministic kernels
//!
//! Deterministic kernels (`Choice::Deterministic`, Metal's `Options::deterministic`) are chosen only by the weight.
//! `docs/determinism.md` lists for each operation what its choice depends on.
//!
//! - *A new choice by the number of rows has a line in that page. A deterministic backend makes such a choice only if a
//!   row's bits stay the same.*
//! - *Kernels that can compute the same row have the same order of sums. They write out roundings that a compiler could
//!   contract.*

use super::{Choice, Cuda};
use super::{gemm, gemm_int8, gemv};
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::{Product, RowSelection};
use gristmill_gpu::storage::{BF16, EXACT, INT8};
use gristmill_kernels::act::{ActReader, Precision, Representations};
use gristmill_kernels::error::{Error, Result};
use std::fmt::{self, Display};

/// A family of kernels that multiply matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Dot products: `kernels/gemv.cu`. Every device, format and precision; the fastest for one row or two.
    Gemv,
    /// Tensor cores on bytes: `kernels/gemm_int8.cu`. Quantised weights, activations of
    /// [`gristmill_kernels::act::Precision::Fast`], compute capability 8.0 and later; for a few rows.
    Int8,
    /// Tensor cores by warps: `kernels/gemm.cu`. Quantised weights and BF16, activations of
    /// [`gristmill_kernels::act::Precision::Fast`], compute capability 8.0 and later.
    Mma,
    /// Tensor cores by groups of four warps: `kernels/gemm_wgmma.cu`. As `Mma`, but of compute capability 9.0 alone.
    Wgmma,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gemv, Self::Int8, Self::Mma, Self::Wgmma];

    /// Whether devices of this compute capability (90 for 9.0) have the instructions.
    pub fn runs_on(self, capability: u32) -> bool {
        match self {
            Self::Gemv => true,
            Self::Int8 | Self::Mma => capability >= 80,
            // Later ones have others instead.
            Self::Wgmma => capability == 90,
        }
    }
}

impl Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gemv => "gemv",
            Self::Int8 => "int8",
            Self::Mma => "mma",
            Self::Wgmma => "wgmma",
        })
    }
}

/// What a product's family depends on.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    op: &'static str,
    pub(super) weight: &'a PlaneRows,
    /// The precision of the activations.
    pub(super) precision: Precision,
    /// Rows of Y.
    pub(super) rows: usize,
    /// Experts, if these are pairs.
    pub(super) experts: Option<usize>,
}

impl<'a> Shape<'a> {
    pub(super) fn of(product: &Product<'a>) -> Self {
        let experts = match product.rows {
            RowSelection::Pairs { groups, .. } => Some(groups.experts()),
            _ => None,
        };
        let (op, weight, precision) = (product.op, product.weight(), product.x.precision());
        Self { op, weight, precision, rows: product.y.rows(), experts }
    }
}

/// Rows of activations up to which all representations are prepared: a step of few rows takes launches, not bytes, and
/// experts of few tokens have kernels of their own.
const FEW_ROWS: usize = 16;

/// The representations that a product of all rows of activations reads.
pub(super) fn wanted(cuda: &Cuda, weight: &PlaneRows, precision: Precision, reader: &ActReader) -> Representations {
    let (rows, experts) = match reader.pairs_per_row {
        // Products with slots or with copied experts are chosen as those with all experts, too.
        Some(pairs) => (reader.rows.saturating_mul(pairs), Some(reader.weight.experts())),
        None => (reader.rows, None),
    };
    if reader.rows <= FEW_ROWS {
        return Representations::ALL;
    }
    match chosen(cuda, &Shape { op: "name_readers", weight, precision, rows, experts }) {
        Ok(Family::Mma | Family::Wgmma) => BF16,
        Ok(Family::Gemv) if !gemv::reads_int8(weight, precision) => EXACT,
        Ok(Family::Gemv | Family::Int8) => INT8,
        // The product is refused.
        Err(_) => Representations::ALL,
    }
}

/// The family that multiplies. For `Mma` and `Wgmma`, `gemm.rs` chooses.
pub(super) fn chosen(cuda: &Cuda, shape: &Shape) -> Result<Family> {
    match cuda.options.choice {
        Choice::Fastest => Ok(fastest(cuda, shape)),
        Choice::Deterministic => Ok(deterministic(cuda, shape)),
        Choice::Family(family) => asked(cuda, shape, family),
    }
}

/// By the number of rows.
fn fastest(cuda: &Cuda, shape: &Shape) -> Family {
    if gemm_int8::serves(cuda, shape) {
        Family::Int8
    } else if gemm::serves(cuda, shape) {
        Family::Mma
    } else {
        Family::Gemv
    }
}

/// Chosen only by the weight. Among the families whose result for a row depends only on the weight's shape, int8 on
/// tensor cores needs about the time of dot products for one row, and little more for eight (figures: `gemm_int8.rs`).
fn deterministic(cuda: &Cuda, shape: &Shape) -> Family {
    let int8 = Family::Int8.runs_on(cuda.device.gpu().properties().architecture);
    if int8 && gemv::reads_int8(shape.weight, shape.precision) { Family::Int8 } else { Family::Gemv }
}

/// The family that was requested, if it can multiply this.
fn asked(cuda: &Cuda, shape: &Shape, family: Family) -> Result<Family> {
    let (format, precision) = (shape.weight.format, shape.precision);
    let rule = match family {
        Family::Int8 if !gemv::reads_int8(shape.weight, precision) => {
            Some("it multiplies quantised weights with activations of precision `Fast`")
        }
        Family::Mma | Family::Wgmma => gemm::cannot(cuda, family, format, precision),
        _ => None,
    };
    let Some(rule) = rule else { return Ok(family) };
    let found = format!("{family}, for {format} and activations of precision {precision:?}");
    Err(Error::Range { op: shape.op, what: "the family of kernels that was asked for", found, rule })
}

//! The families of kernels that multiply matrices.

use super::Cuda;
use super::{gemm, gemm_int8, gemv};
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::RowSelection;
use gristmill_kernels::act::Act;
use gristmill_kernels::error::{Error, Result};
use std::fmt::{self, Display};

/// A family of kernels that multiply matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Dot products: `kernels/gemv.cu`. Every cuda, format and precision; the fastest for one row or two.
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

/// RowSelection family multiplies: the one that was asked for, or else the fastest. `gemm.rs` has both `Mma` and `Wgmma` and chooses
/// between them by itself.
pub(super) fn chosen(
    cuda: &Cuda,
    op: &'static str,
    w: &PlaneRows,
    x: &Act,
    which: RowSelection,
    rows: usize,
) -> Result<Family> {
    let Some(family) = cuda.family() else {
        return Ok(if gemm_int8::serves(cuda, w, x, which, rows) {
            Family::Int8
        } else if gemm::serves(cuda, w, x, which, rows) {
            Family::Mma
        } else {
            Family::Gemv
        });
    };
    let rule = match family {
        Family::Int8 if !gemv::reads_int8(w, x) => {
            "it multiplies quantised weights with activations of precision `Fast`"
        }
        Family::Mma | Family::Wgmma => match gemm::cannot(cuda, family, w.format, x.precision()) {
            Some(rule) => rule,
            None => return Ok(family),
        },
        _ => return Ok(family),
    };
    let found = format!("{family}, for {} and activations of precision {:?}", w.format, x.precision());
    Err(Error::Range { op, what: "the family of kernels that was asked for", found, rule })
}

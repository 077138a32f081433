//! The families of kernels that multiply matrices.

use super::{Choice, Cuda};
use super::{gemm, gemm_int8, gemv};
use gristmill_gpu::product::Product;
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

/// The family that multiplies. For `Mma` and `Wgmma`, `gemm.rs` chooses.
pub(super) fn chosen(cuda: &Cuda, product: &Product) -> Result<Family> {
    match cuda.options.choice {
        Choice::Fastest => Ok(fastest(cuda, product)),
        Choice::Deterministic => Ok(deterministic(cuda, product)),
        Choice::Family(family) => asked(cuda, product, family),
    }
}

/// By the number of rows.
fn fastest(cuda: &Cuda, product: &Product) -> Family {
    if gemm_int8::serves(cuda, product) {
        Family::Int8
    } else if gemm::serves(cuda, product) {
        Family::Mma
    } else {
        Family::Gemv
    }
}

/// By the weight alone. Of the families whose result for a row depends on the weight's shape alone, int8 on tensor
/// cores takes one row in about the time of dot products, and eight in little more (figures: `gemm_int8.rs`).
fn deterministic(cuda: &Cuda, product: &Product) -> Family {
    let int8 = Family::Int8.runs_on(cuda.device.gpu().properties().architecture);
    if int8 && gemv::reads_int8(product.weight(), product.x) { Family::Int8 } else { Family::Gemv }
}

/// The family that was asked for, if it can multiply this.
fn asked(cuda: &Cuda, product: &Product, family: Family) -> Result<Family> {
    let (format, x) = (product.format(), product.x);
    let rule = match family {
        Family::Int8 if !gemv::reads_int8(product.weight(), x) => {
            Some("it multiplies quantised weights with activations of precision `Fast`")
        }
        Family::Mma | Family::Wgmma => gemm::cannot(cuda, family, format, x.precision()),
        _ => None,
    };
    let Some(rule) = rule else { return Ok(family) };
    let found = format!("{family}, for {format} and activations of precision {:?}", x.precision());
    Err(Error::Range { op: product.op, what: "the family of kernels that was asked for", found, rule })
}

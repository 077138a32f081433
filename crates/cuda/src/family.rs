//! The families of kernels that multiply matrices.

use gristmill_kernels::format::Format;
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

    /// Whether its kernels multiply weights of a format.
    pub fn takes(self, format: Format) -> bool {
        match self {
            Self::Gemv => true,
            Self::Int8 => !format.is_float(),
            // F16 has more bits than bfloat16 would keep.
            Self::Mma | Self::Wgmma => !format.is_float() || format.is_bf16() || format.is_narrow_float(),
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

//! RowSelection units the backend may compile, with which definitions: for those who compile or check all of them.

use super::{attention, experts, gemm, gemv, norm_matmul};
use crate::gpu::shared_struct::{SharedStruct, StructLayout};
use crate::gpu::{Unit, common};

/// Every text that the backend may compile.
pub fn all() -> Vec<Unit> {
    common::units().chain(gemv::units()).chain(gemm::units()).chain(attention::units()).collect()
}

/// Structs that Metal's own units declare too.
pub(in crate::gpu) const SHARED_STRUCTS: &[StructLayout] =
    &[attention::AttentionParams::LAYOUT, experts::ExpertsParams::LAYOUT, norm_matmul::NormMatmulParams::LAYOUT];

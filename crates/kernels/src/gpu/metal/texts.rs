//! Which texts the backend may compile, with which definitions: for those who compile or check all of them.

use super::{attention, experts, gemm, gemv, norm_matmul};
use crate::gpu::twin::{Layout, Twin};
use crate::gpu::{Text, small};

/// Every text that the backend may compile.
pub fn all() -> Vec<Text> {
    small::texts().chain(gemv::texts()).chain(gemm::texts()).chain(attention::texts()).collect()
}

/// Structs that Metal's own texts declare too.
pub(in crate::gpu) const TWINS: &[Layout] =
    &[attention::AttentionParams::LAYOUT, experts::ExpertsParams::LAYOUT, norm_matmul::NormMatmulParams::LAYOUT];

//! Matrix products, and the preparation of weights.

use super::Cuda;
use super::plan::{Plan, Shape};
use super::{gemm, gemm_f32, gemm_int8, gemv};
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::Product;
use gristmill_kernels::error::Result;
use gristmill_kernels::weight::{Role, TensorView};

/// The parts of a weight.
pub(super) fn prepare(cuda: &Cuda, tensors: &[TensorView], role: Role) -> Result<Vec<PlaneRows>> {
    match role {
        // Neighbours of one format are one matrix, so that one launch multiplies them.
        Role::Matrix => {
            tensors.chunk_by(|a, b| a.format == b.format).map(|run| PlaneRows::new(&cuda.device, run)).collect()
        }
        _ => tensors.chunks(1).map(|one| PlaneRows::new(&cuda.device, one)).collect(),
    }
}

/// Launches a product as planned.
pub(super) fn multiply(cuda: &Cuda, product: &Product) -> Result<()> {
    let shape = Shape::of(product);
    match &Plan::new(&cuda.card, &shape)? {
        Plan::Gemv(plan) => gemv::multiply(cuda, product, plan),
        Plan::F32(plan) => gemm_f32::multiply(cuda, product, plan),
        Plan::Int8(plan) => gemm_int8::multiply(cuda, product, plan),
        Plan::Gemm(plan) => gemm::multiply(cuda, product, &shape, plan),
    }
}

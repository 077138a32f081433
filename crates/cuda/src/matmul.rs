//! Matrix products, and the preparation of weights.

use super::family::{Family, Shape, chosen};
use super::{Choice, Cuda};
use super::{gemm, gemm_f32, gemm_int8, gemv};
use gristmill_gpu::common::activations::prepare_activations;
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

/// Launches a product by the family that is chosen for it.
pub(super) fn multiply(cuda: &Cuda, product: &Product) -> Result<()> {
    match chosen(cuda, &Shape::of(product))? {
        Family::Gemv => match gemm_f32::form(product).filter(|_| cuda.options.choice == Choice::Fastest) {
            Some(form) => gemm_f32::multiply(cuda, product, form),
            None => gemv::multiply(cuda, product),
        },
        Family::Int8 => gemm_int8::multiply(cuda, product),
        Family::Mma | Family::Wgmma => {
            gemm::multiply(cuda, product)?;
            let act = product.act.filter(|_| !product.rounded);
            act.map_or(Ok(()), |act| prepare_activations(&cuda.device, product.y.as_view(), act))
        }
    }
}

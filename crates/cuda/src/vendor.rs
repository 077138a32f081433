//! What differs between CUDA and other GPUs.

use super::backend::Cuda;
use super::family::Family;
use super::options::Options;
use super::plan::{self, Problem};
use super::{attention, experts, matmul, norm_matmul, rates};
use gristmill_gpu::attention::AttentionCall;
use gristmill_gpu::experts::FewTokens;
use gristmill_gpu::layout::{self, PlaneRows};
use gristmill_gpu::product::Product;
use gristmill_gpu::{Device, Gpu, Vendor};
use gristmill_kernels::act::{ActReader, Precision, Representations};
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::ops::*;
use gristmill_kernels::weight::{Footprint, Role, TensorShape, TensorView};
use std::sync::Arc;

/// Steps of more rows than this are not padded, and so hardly ever come again.
const LARGEST_BUCKET: usize = 256;

impl Vendor for Cuda {
    const ROUNDS_ACTIVATIONS: bool = true;
    const TILING: Tiling = Tiling { tile_rows: plan::LEAST_TILE_ROWS, grid_words: 0 };
    // Neighbours are joined when weights are prepared.
    const JOINED_PARTS: usize = 1;

    fn over(&self, gpu: Arc<dyn Gpu>) -> Result<Self> {
        Self::new(gpu, Options { choice: self.card.choice })
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn deterministic(&self) -> bool {
        self.card.is_deterministic()
    }

    fn batch_bucket(&self, rows: usize) -> usize {
        // Up to eight rows each one costs (`experts.cu`, `gemv.cu`). Beyond, `gemm_int8.cu` and `gemm.cu` multiply
        // eight at once, padding has no experts, and so fewer sizes would cost more and more sizes gain little.
        match rows {
            0..=8 => rows,
            9..=16 => rows.next_multiple_of(2),
            17..=128 => rows.next_multiple_of(8),
            129..=LARGEST_BUCKET => rows.next_multiple_of(16),
            _ => rows,
        }
    }

    fn context_bucket(&self, columns: usize) -> usize {
        attention::context_bucket(columns)
    }

    fn rates(&self) -> Result<Option<Rates>> {
        rates::measure(&self.device).map(Some)
    }

    fn footprint(&self, shape: &TensorShape) -> Footprint {
        Footprint { owned: layout::bytes(shape), mapped: 0 }
    }

    fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Vec<PlaneRows>> {
        matmul::prepare(self, tensors, role)
    }

    fn tile_rows(&self, experts: usize, pairs: usize, rounded: bool) -> usize {
        plan::tile_rows(&self.card, experts, pairs, rounded)
    }

    fn multiply(&self, product: &Product) -> Result<()> {
        matmul::multiply(self, product)
    }

    fn wanted(&self, part: &PlaneRows, precision: Precision, reader: &ActReader) -> Representations {
        let problem = Problem::of_reader(part.format, precision, reader);
        plan::representations(&self.card, &problem, reader.rows)
    }

    fn rounds_results(&self, product: &Product) -> Result<bool> {
        plan::rounds_results(&self.card, &Problem::of(product))
    }

    fn attention(&self, call: &AttentionCall) -> Result<()> {
        attention::attention(self, call)
    }

    fn norm_matmul(&self, call: &mut NormMatmul) -> Result<Fused> {
        norm_matmul::norm_matmul(self, call)
    }

    fn experts_per_lane(&self) -> usize {
        experts::EXPERTS_PER_LANE
    }

    fn few_tokens(&self, experts: usize, top_k: usize) -> usize {
        plan::few_tokens(&self.card, experts, top_k)
    }

    fn fuses_experts(&self) -> bool {
        self.card.may(Family::Gemv)
    }

    fn experts(&self, few: &FewTokens, product: &Product) -> Result<()> {
        experts::multiply(self, few, product)
    }

    fn attend(&self, call: &mut Attend) -> Result<Fused> {
        attention::attend(self, call)
    }
}

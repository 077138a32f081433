//! Differences between GPUs: matrices, experts, attention, and how a device is driven.

use crate::attention::AttentionCall;
use crate::device::Device;
use crate::device_api::Gpu;
use crate::experts::FewTokens;
use crate::layout::PlaneRows;
use crate::product::Product;
use gristmill_kernels::act::{ActReader, Precision, Representations};
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::ops::*;
use gristmill_kernels::weight::{Footprint, Role, TensorShape, TensorView};
use std::fmt::Debug;
use std::sync::Arc;

/// One kind of GPU. [`crate::GpuBackend`] does what all GPUs do alike, and asks this for the rest.
pub trait Vendor: Debug + Send + Sync + Sized + 'static {
    /// Whether products read rounded activations at [`gristmill_kernels::act::Precision::Fast`].
    const ROUNDS_ACTIVATIONS: bool;
    /// How pairs are split into tiles, at least.
    const TILING: Tiling;
    /// Neighbouring parts of one format that a launch multiplies, at most.
    const JOINED_PARTS: usize;

    /// The same kind with the same options over another device.
    fn over(&self, gpu: Arc<dyn Gpu>) -> Result<Self>;
    /// The device.
    fn device(&self) -> &Device;
    /// See [`gristmill_kernels::Backend::deterministic`].
    fn deterministic(&self) -> bool;

    /// See [`gristmill_kernels::Backend::batch_bucket`].
    fn batch_bucket(&self, rows: usize) -> usize {
        rows
    }
    /// See [`gristmill_kernels::Backend::context_bucket`].
    fn context_bucket(&self, columns: usize) -> usize {
        columns
    }
    /// See [`gristmill_kernels::Backend::rates`].
    fn rates(&self) -> Result<Option<Rates>> {
        Ok(None)
    }
    /// See [`gristmill_kernels::Backend::footprint`].
    fn footprint(&self, shape: &TensorShape) -> Footprint;
    /// The parts of a weight.
    fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Vec<PlaneRows>>;
    /// Rows of a full tile for this number of pairs. `rounded`: their products round their results
    /// ([`Vendor::rounds_results`]).
    fn tile_rows(&self, experts: usize, pairs: usize, rounded: bool) -> usize {
        let _ = (experts, pairs, rounded);
        Self::TILING.tile_rows
    }

    /// A product of at least one row; kernels are chosen by the rows of Y, which the host knows.
    fn multiply(&self, product: &Product) -> Result<()>;
    /// The representations of activations of a precision that a product with a part of its weight may read.
    fn wanted(&self, part: &PlaneRows, precision: Precision, reader: &ActReader) -> Representations {
        let _ = (part, precision, reader);
        Representations::ALL
    }
    /// Whether the kernel for a product reads bfloat16 activations alone, and can write [`Product::rounded`] results.
    /// The pairs need not be grouped yet.
    fn rounds_results(&self, product: &Product) -> Result<bool> {
        let _ = product;
        Ok(false)
    }
    /// Attention of at least one token.
    fn attention(&self, call: &AttentionCall) -> Result<()>;

    /// [`NormMatmul`] at once, where that is faster.
    fn norm_matmul(&self, call: &mut NormMatmul) -> Result<Fused>;
    /// The most tokens, with `top_k` of this number of experts each, whose experts [`Vendor::experts`] multiplies. An
    /// expert of several tokens is read for each of them, at best from the cache: of 128 experts and 8 of them for each
    /// token, four tokens have 29 different ones in 32.
    fn few_tokens(&self, experts: usize, top_k: usize) -> usize {
        let _ = (experts, top_k);
        4
    }
    /// Experts in each lane of a warp that routes next to these products, at most: `EXPERTS_PER_LANE` of their units.
    /// With more there would be no registers for weights.
    fn experts_per_lane(&self) -> usize {
        8
    }
    /// Whether [`Vendor::experts`] may run.
    fn fuses_experts(&self) -> bool {
        true
    }
    /// One of the two products of [`Experts`]: gate and up for each pair, or down with the sum over a token's pairs.
    fn experts(&self, few: &FewTokens, product: &Product) -> Result<()>;
    /// [`Attend`] at once.
    fn attend(&self, call: &mut Attend) -> Result<Fused> {
        let _ = call;
        Ok(Fused::No)
    }
}

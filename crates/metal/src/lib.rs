//! Metal: which kernels multiply, attention, and the driver. Unverified on hardware: a simulator runs its
//! kernels, and the driver is type-checked.
//!
//! From here: [`matmul`], [`attention`] are host sides of what Metal does in its own way; all else is in
//! [`gristmill_gpu`]. Weights stay where the file's map has them (`layout::PlaneRows::of_file`), activations are
//! floats. `driver` is Apple's framework, on macOS alone.

#![deny(unsafe_code)]

mod attention;
#[cfg(target_os = "macos")]
pub mod driver;
mod experts;
mod gemm;
mod gemv;
#[cfg(any(target_os = "macos", test))]
mod hazards;
mod matmul;
mod norm_matmul;
pub mod units;

use gristmill_gpu::attention::AttentionCall;
use gristmill_gpu::experts::FewTokens;
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::product::Product;
use gristmill_gpu::shared_struct::{SharedStruct, StructLayout};
use gristmill_gpu::source::{COMMON, Library};
use gristmill_gpu::{Device, Gpu, GpuBackend, Vendor};
use gristmill_kernels::Backend;
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::ops::*;
use gristmill_kernels::weight::{Footprint, Role, TensorShape, TensorView};
use std::sync::Arc;

/// The kernel sources of the backend.
pub const SOURCES: &[Library] = &[COMMON, OWN];

const OWN: Library = gristmill_gpu::library!("metal", language Some("device_metal.h"), SHARED_STRUCTS,
    [
        "attention.h",
        "attention_combine.metal",
        "attention_plan.metal",
        "attention_split.metal",
        "attention_tile.metal",
        "attention_walk.h", "device_metal.h",
        "experts.h",
        "gemm.metal",
        "gemv.h",
        "gemv.metal",
        "norm_matmul.h",
        "tasks.h",
    ]
);

/// Structs that the sources declare and the host fills.
const SHARED_STRUCTS: &[StructLayout] =
    &[attention::AttentionParams::LAYOUT, experts::ExpertsParams::LAYOUT, norm_matmul::NormMatmulParams::LAYOUT];

/// Grids that grouping writes behind the number of tiles, for 1, 2, … groups of outputs, three words each: `GRIDS` in
/// `kernels/group.h`.
const GRIDS: usize = 64;

/// Metal's part of a backend.
#[derive(Debug)]
pub struct Metal {
    device: Device,
    options: Options,
}

/// Options of a backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Kernels whose result for a row does not depend on the number of rows (`docs/determinism.md`), instead of the
    /// fastest.
    pub deterministic: bool,
}

impl Metal {
    /// A backend over a device: a real one, or a simulator's.
    pub fn backend(gpu: Arc<dyn Gpu>, options: Options) -> Result<Backend> {
        Ok(Backend::new(GpuBackend::new(Self::new(gpu, options)?)))
    }

    fn new(gpu: Arc<dyn Gpu>, options: Options) -> Result<Self> {
        Ok(Self { device: Device::new(gpu)?, options })
    }
}

impl Vendor for Metal {
    const ROUNDS_ACTIVATIONS: bool = false;
    const TILING: Tiling = Tiling { tile_rows: gemm::TILE_ROWS, grid_words: 3 * GRIDS };
    const JOINED_PARTS: usize = matmul::JOINED_PARTS;

    fn over(&self, gpu: Arc<dyn Gpu>) -> Result<Self> {
        Self::new(gpu, self.options)
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn deterministic(&self) -> bool {
        self.options.deterministic
    }

    fn footprint(&self, shape: &TensorShape) -> Footprint {
        Footprint { owned: 0, mapped: shape.file_bytes() }
    }

    /// Each tensor stays by itself, as the file has it.
    fn prepare(&self, tensors: &[TensorView], _role: Role) -> Result<Vec<PlaneRows>> {
        tensors.iter().map(|tensor| PlaneRows::of_file(&self.device, tensor)).collect()
    }

    fn multiply(&self, product: &Product) -> Result<()> {
        matmul::multiply(self, product)
    }

    fn attention(&self, call: &AttentionCall) -> Result<()> {
        attention::attention(self, call)
    }

    fn norm_matmul(&self, call: &mut NormMatmul) -> Result<Fused> {
        norm_matmul::norm_matmul(self, call)
    }

    fn fuses_experts(&self) -> bool {
        !self.deterministic()
    }

    fn experts(&self, few: &FewTokens, product: &Product) -> Result<()> {
        experts::multiply(&self.device, few, product)
    }
}

//! The Metal backend: choice of matrix kernels, attention, and the driver. Unverified on hardware: a simulator runs the
//! kernels, and the driver is type-checked.
//!
//! ```no_run
//! # #[cfg(target_os = "macos")] {
//! use gristmill_metal::{MetalDevice, Options};
//! use gristmill_kernels::act::Precision;
//! use gristmill_kernels::format::Format;
//! use gristmill_kernels::ops::{Matmul, PrepareActivations};
//! use gristmill_kernels::weight::{Role, TensorView};
//!
//! // Two rows of 32 weights in Q8_0, as a GGUF file has them: a scale of 1 in f16, and 32 codes.
//! let mut bytes = Vec::new();
//! for code in [1_u8, 2] {
//!     bytes.extend([0x00, 0x3c]);
//!     bytes.extend([code; 32]);
//! }
//! let tensor = TensorView::new("w", Format::Q8_0, [1, 2, 32], bytes);
//! let backend = MetalDevice::open(0)?.backend(Options::default())?;
//! let weight = backend.prepare(&[tensor], Role::Matrix)?;
//! let mut x = backend.alloc::<f32>(32, "x")?;
//! backend.upload(&[0.5; 32], &mut x)?;
//! let mut act = backend.alloc_act(Precision::Exact, 1, 32)?;
//! backend.run(PrepareActivations::new(x.view(1, 32)?, &mut act))?;
//! let mut y = backend.alloc::<f32>(2, "y")?;
//! backend.run(Matmul::new(&weight, &act, y.view_mut(1, 2)?))?;
//! assert_eq!(backend.into_host(y)?, [16.0, 32.0]);
//! # }
//! # Ok::<(), gristmill_kernels::Error>(())
//! ```
//!
//! [`matmul`] and [`attention`] are the host sides of kernels that only Metal has; the rest is in [`gristmill_gpu`].
//! Weights stay in the file's memory map (`layout::PlaneRows::of_file`), and activations are floats. `driver` calls
//! Apple's framework, on macOS only.

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
#[cfg(target_os = "macos")]
mod open;
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

#[cfg(target_os = "macos")]
pub use open::MetalDevice;

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

/// Structs that the kernel sources declare and the host fills.
const SHARED_STRUCTS: &[StructLayout] =
    &[attention::AttentionParams::LAYOUT, experts::ExpertsParams::LAYOUT, norm_matmul::NormMatmulParams::LAYOUT];

/// Grids that grouping writes after the number of tiles, for 1, 2, … groups of outputs. Each has three words: `GRIDS`
/// in `kernels/group.h`.
const GRIDS: usize = 64;

/// The Metal-specific part of a backend.
#[derive(Debug)]
pub struct Metal {
    device: Device,
    options: Options,
}

/// Options of a backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Selects kernels whose result for a row does not depend on the number of rows (`docs/determinism.md`), instead of
    /// the fastest kernels.
    pub deterministic: bool,
}

impl Metal {
    /// A backend on a given device, for instance a simulator. `MetalDevice::backend` uses a real device.
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

    /// Each tensor is stored separately, in the file's layout.
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

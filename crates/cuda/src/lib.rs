//! CUDA: which kernels multiply, attention, and the driver. What all GPUs do alike is in [`gristmill_gpu`].
//!
//! ```no_run
//! use gristmill_cuda::{CudaDevice, Options};
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
//! let backend = CudaDevice::open(0)?.backend(Options::default())?;
//! let weight = backend.prepare(&[tensor], Role::Matrix)?;
//! let mut x = backend.alloc::<f32>(32, "x")?;
//! backend.upload(&[0.5; 32], &mut x)?;
//! let mut act = backend.alloc_act(Precision::Exact, 1, 32)?;
//! backend.run(PrepareActivations::new(x.view(1, 32)?, &mut act))?;
//! let mut y = backend.alloc::<f32>(2, "y")?;
//! backend.run(Matmul::new(&weight, &act, y.view_mut(1, 2)?))?;
//! assert_eq!(backend.into_host(y)?, [16.0, 32.0]);
//! # Ok::<(), gristmill_kernels::Error>(())
//! ```
//!
//! From here: [`plan`] decides which kernel multiplies, with which tile and split, [`attention`] works on the paged
//! cache, [`driver`] runs launches. The kernels' sources are in `kernels/`.
//!
//! # Inline PTX
//!
//! Inline PTX is only in `ptx.cuh`, `hopper.cuh` and `system.cuh` (words that the host shares), which have counterparts
//! in plain C++ for the simulator. *Assembly that reads memory is `volatile`, because NVRTC moves other assembly out of
//! the condition that guards it. A test checks this.*

#![deny(unsafe_code)]

mod attention;
pub mod cache;
pub mod driver;
mod experts;
pub mod family;
mod gemm;
mod gemm_f32;
mod gemm_int8;
mod gemm_sum;
mod gemv;
mod host_experts;
mod jit;
mod matmul;
mod norm_matmul;
pub mod nvrtc;
mod open;
mod options;
mod plan;
mod rates;
pub mod units;

use family::Family;
use gristmill_gpu::attention::AttentionCall;
use gristmill_gpu::experts::FewTokens;
use gristmill_gpu::layout::{self, PlaneRows};
use gristmill_gpu::product::Product;
use gristmill_gpu::shared_struct::{SharedStruct, StructLayout};
use gristmill_gpu::source::{COMMON, Library};
use gristmill_gpu::{Device, Gpu, GpuBackend, Vendor};
use gristmill_kernels::Backend;
use gristmill_kernels::act::{ActReader, Precision, Representations};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::groups::Tiling;
use gristmill_kernels::ops::*;
use gristmill_kernels::weight::{Footprint, Role, TensorShape, TensorView};
use gristmill_offload::OffloadBackend;
pub use gristmill_offload::{HostExperts, STAGING_BYTES};
use std::sync::Arc;

pub use open::{CudaDevice, OpenBackend};
pub use options::{Choice, Options};
use plan::{Card, Problem};

/// The kernel sources of the backend.
pub const SOURCES: &[Library] = &[COMMON, gristmill_offload::SOURCES, OWN];

const OWN: Library = gristmill_gpu::library!("cuda", language Some("device_cuda.h"), SHARED_STRUCTS,
    [
        "attention.cuh",
        "attention_combine.cu",
        "attention_decode.cu",
        "attention_decode.cuh",
        "attention_kv_write.cuh",
        "attention_latent.cu",
        "attention_latent.cuh",
        "attention_latent_split.cu",
        "attention_mma.cuh",
        "attention_neighbours.cu",
        "attention_result.cuh",
        "attention_rows.cuh",
        "attention_runs.cuh",
        "attention_split.cu",
        "attention_tile.cu",
        "attention_wgmma.cu",
        "device_cuda.h",
        "experts.cu",
        "gated.cuh",
        "gated_out.cuh",
        "gemm.cu",
        "gemm.cuh",
        "gemm_f32.cu",
        "gemm_int8.cu",
        "gemm_int8_tile.cu",
        "gemm_sum.cu",
        "gemm_wgmma.cu",
        "gemv.cu",
        "gemv.cuh",
        "host_experts.cu",
        "hopper.cuh",
        "int8_sums.cuh",
        "norm_matmul.cu",
        "ptx.cuh",
        "quarter_row.cuh",
        "rates.cu",
        "row_chunks.cuh",
        "shared_act.cuh",
        "staged.cuh",
        "system.cuh",
    ]
);

/// Structs that the sources declare and the host fills.
const SHARED_STRUCTS: &[StructLayout] = &[
    attention::AttentionParams::LAYOUT,
    attention::KvWriteParams::LAYOUT,
    attention::DecodeParams::LAYOUT,
    experts::ExpertsParams::LAYOUT,
    gemm::GemmParams::LAYOUT,
    gemm_f32::GemmF32Params::LAYOUT,
    gemm_sum::GemmSumParams::LAYOUT,
    host_experts::PostParams::LAYOUT,
    host_experts::ReceiveParams::LAYOUT,
    norm_matmul::NormMatmulParams::LAYOUT,
    rates::ReadParams::LAYOUT,
    rates::MultiplyParams::LAYOUT,
];

/// Steps of more rows than this are not padded, and so hardly ever come again.
const LARGEST_BUCKET: usize = 256;

/// CUDA's part of a backend.
#[derive(Debug)]
pub struct Cuda {
    device: Device,
    card: Card,
}

impl Cuda {
    /// A backend over a device of the caller's, for instance a simulator's. [`CudaDevice::backend`] is that of a real one.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has no kernels of the family that the options name.
    pub fn backend(gpu: Arc<dyn Gpu>, options: Options) -> Result<Backend> {
        Ok(Backend::new(GpuBackend::new(Self::new(gpu, options)?)))
    }

    /// The same, with experts in host memory that the CPU computes.
    ///
    /// # Errors
    /// Also [`Error::Device`] if the system does not pin memory.
    pub fn backend_with_host_experts(gpu: Arc<dyn Gpu>, options: Options, host: HostExperts) -> Result<Backend> {
        Ok(Backend::new(OffloadBackend::start(Self::new(gpu, options)?, host)?))
    }

    fn new(gpu: Arc<dyn Gpu>, options: Options) -> Result<Self> {
        let properties = gpu.properties();
        if let Choice::Family(family) = options.choice
            && !family.runs_on(properties.architecture)
        {
            let (what, capability) = (format!("kernels of the family {family}"), properties.architecture);
            let reason = format!("they are not for compute capability {}.{}", capability / 10, capability % 10);
            return Err(Error::Device { device: properties.id, what, reason });
        }
        let card = Card::new(properties, options.choice);
        Ok(Self { device: Device::new(gpu)?, card })
    }
}

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

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

pub mod ahead;
mod attention;
mod backend;
pub mod cache;
pub mod driver;
mod experts;
pub mod family;
mod gather_rows;
mod gemm;
mod gemm_f32;
mod gemm_int8;
mod gemm_sum;
mod gemv;
mod host_experts;
mod jit;
mod machine_code;
mod matmul;
pub mod nccl;
mod norm_matmul;
pub mod nvrtc;
mod open;
mod options;
mod plan;
mod rates;
mod sources;
pub mod units;
mod vendor;

pub use backend::Cuda;
pub use gristmill_offload::{HostExperts, STAGING_BYTES};
pub use open::{CudaDevice, OpenBackend};
pub use options::{Choice, Options};
pub use sources::SOURCES;

//! The CPU backend: SIMD levels chosen at run time, a thread pool, weights in tiles of 16 rows.
//!
//! ```
//! use gristmill_cpu::{Cpu, Level};
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
//! let backend = Cpu::backend(Level::best(), 2)?;
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
//! `examples/experts.rs` computes the mixture-of-experts layer of a GGUF file; `docs/kernels.md` explains it.
//!
//! In a development build, copy these lines into the `Cargo.toml` of your workspace. Without optimisation, the kernels are
//! 40 times slower, and cargo ignores the profiles of dependencies:
//!
//! ```toml
//! [profile.dev.package.gristmill-kernels]
//! opt-level = 3
//!
//! [profile.dev.package.gristmill-cpu]
//! opt-level = 3
//! codegen-units = 1
//! overflow-checks = false
//! debug-assertions = false
//! ```
//!
//! [`dot`] is the innermost kernel. [`matmul`] and [`moe`] choose its tiles and activation rows. [`layout`] is the
//! memory layout of weights. [`attention`] reads the paged cache. [`rows`] has the operations on single rows.

#![deny(unsafe_code)]

#[macro_use]
mod operation;

mod act;
mod attention;
mod candidate;
mod cpu;
mod cuts;
mod dot;
mod gathered;
mod group;
mod host;
mod kernels;
mod kv;
pub mod layout;
mod level;
mod math;
mod matmul;
mod moe;
mod offload;
mod out;
mod pool;
mod profile;
mod quantise;
mod recurrent;
mod route;
mod rows;
mod sample;
mod scan;
pub mod simd;
mod weight;

pub use cpu::Cpu;
pub use level::{Level, NotChosen};
pub use offload::readers::READERS;
pub use pool::{MAX_THREADS, Pool};
pub use profile::{Profile, Record, Work};

//! The contract of gristmill's compute kernels, which work directly on GGUF-quantised weights, mixture-of-experts
//! first.
//!
//! Start at [`Backend`]: it checks and runs [`ops`], every operation once, with its shapes and errors. A backend
//! is a crate of its own that implements [`ops::Kernels`]; this crate knows none of them. [`mod@reference`] is the
//! operations in plain f64 sums, the oracle of all tests. [`mod@format`] knows the block formats of GGUF files, one
//! folder each, and [`simd`] the vector operations in which they are unpacked. Nothing here knows of GGUF files or
//! models.
//!
//! ```
//! use gristmill_kernels::act::Precision;
//! use gristmill_kernels::format::Format;
//! use gristmill_kernels::ops::{Matmul, PrepareActivations};
//! use gristmill_kernels::reference::Reference;
//! use gristmill_kernels::weight::{Role, TensorView};
//!
//! // Two rows of 32 weights in Q8_0, as a GGUF file has them: a scale of 1 in f16, and 32 codes.
//! let mut bytes = Vec::new();
//! for code in [1_u8, 2] {
//!     bytes.extend([0x00, 0x3c]);
//!     bytes.extend([code; 32]);
//! }
//! let tensor = TensorView::new("w", Format::Q8_0, [1, 2, 32], bytes);
//! let backend = Reference::backend();
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

#![forbid(unsafe_code)]

// First, for its macros.
#[macro_use]
pub mod simd;

pub mod act;
mod backend;
pub mod error;
pub mod format;
pub mod groups;
pub mod kv;
pub mod offload;
#[macro_use]
pub mod ops;
pub mod random;
pub mod ranks;
pub mod reference;
pub mod storage;
pub mod tensor;
pub mod weight;

pub use backend::{Backend, PendingDownload};
pub use error::{Error, Result};

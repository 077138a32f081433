//! The contract of gristmill's compute kernels, which work directly on GGUF-quantised weights, mixture-of-experts
//! first.
//!
//! The entry is [`Backend`]: it checks and runs [`ops`], with their shapes and errors. Each backend is a crate that
//! implements [`ops::Kernels`]; this crate depends on no backend. [`mod@reference`] has the operations in plain f64
//! sums, the oracle of all tests. [`mod@format`] contains the block formats of GGUF files, one folder each, and
//! [`simd`] the vector operations that unpack them. This crate is independent of GGUF files and models.

#![forbid(unsafe_code)]

pub mod act;
mod backend;
pub mod error;
pub mod format;
pub mod groups;
pub mod kv;
pub mod ops;
pub mod random;
pub mod reference;
pub mod simd;
pub mod storage;
pub mod tensor;
pub mod weight;

pub use backend::{Backend, PendingDownload};
pub use error::{Error, Result};

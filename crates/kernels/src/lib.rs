//! The contract of gristmill's compute kernels, which work directly on GGUF-quantised weights, mixture-of-experts
//! first.
//!
//! The way in is [`Backend`]: it checks and runs [`ops`], every operation once, with its shapes and errors. A backend
//! is a crate of its own that implements [`ops::Kernels`]; this crate knows none of them. [`mod@reference`] is the
//! operations in plain f64 sums, the oracle of all tests. [`mod@format`] knows the block formats of GGUF files, one
//! folder each, and [`simd`] the vector operations in which they are unpacked. Nothing here knows of GGUF files or
//! models.

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

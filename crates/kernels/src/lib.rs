//! Compute kernels that work directly on GGUF-quantised weights, mixture-of-experts first.
//!
//! The way in is [`ops::Backend`]: every operation once, with its shapes and errors. [`mod@reference`] is the same in
//! plain f64 sums, the oracle of all tests; [`cpu`] and [`gpu`] are the fast ones. [`mod@format`] knows the block formats of GGUF
//! files, one folder each. Nothing here knows of GGUF files or models.

pub mod act;
mod check;
mod compose;
pub mod cpu;
pub mod error;
pub mod format;
pub mod gpu;
mod group;
mod host;
pub mod kv;
pub mod ops;
pub mod random;
pub mod reference;
mod route;
mod sample;
pub mod simd;
pub mod tensor;
pub mod weight;

pub use error::{Error, Result};

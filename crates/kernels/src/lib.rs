//! Compute kernels that work directly on GGUF-quantised weights, mixture-of-experts first.
//!
//! The way in is [`Backend`]: it runs [`ops`], every operation once, with its shapes and errors. [`mod@reference`] is the
//! same in plain f64 sums, the oracle of all tests; [`cpu`] and [`gpu`] are the fast ones. [`mod@format`] knows the block
//! formats of GGUF files, one folder each. Nothing here knows of GGUF files or models.

pub mod act;
mod backend;
pub mod cpu;
pub mod error;
pub mod format;
pub mod gpu;
pub mod groups;
pub mod kv;
pub mod ops;
pub mod random;
pub mod reference;
pub mod simd;
pub mod storage;
pub mod tensor;
pub mod weight;

pub use backend::Backend;
pub use error::{Error, Result};
